/* SPDX-License-Identifier: MIT */
/* The hook of SQLite's calls of file methods (sqlite3_io_methods), and the methods of the system's files attached to it before main. */
#include <stdio.h>
#include <stdlib.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include "sqlite3.h"

/* Methods differ in what they take; none of that concerns a stub, which leaves every argument where it is. */
SHUNT_DISPATCHER_DEFINE(sqlite_io, int, (void *file));

static void attach(const void *method)
{
	if (shunt_dispatcher_attach(shunt_dispatcher_sqlite_io(), method))
		fprintf(stderr, "%s\n", shunt_error());
}

static __attribute__((constructor)) void attach_all(void)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	sqlite3_file *file = calloc(1, (size_t)vfs->szOsFile);
	int flags = SQLITE_OPEN_TEMP_DB | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXCLUSIVE | SQLITE_OPEN_DELETEONCLOSE;

	if (!file || vfs->xOpen(vfs, NULL, file, flags, &flags)) {
		fprintf(stderr, "no temporary file to take the methods from\n");
		exit(1);
	}
	attach((const void *)file->pMethods->xRead);
	attach((const void *)file->pMethods->xWrite);
	attach((const void *)file->pMethods->xFileSize);
	attach((const void *)file->pMethods->xFileControl);
	attach((const void *)file->pMethods->xDeviceCharacteristics);
	file->pMethods->xClose(file);
	free(file);
}
