/* SPDX-License-Identifier: MIT */
/* Whole files in and out. */
#include "tools/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int file_read(const char *path, void **bytes, size_t *len)
{
	FILE *in = fopen(path, "rbe");
	size_t capacity = 1 << 16;
	char *data = NULL;
	int err = 0;

	if (!in)
		return -errno;
	*len = 0;
	while (!err && !feof(in)) {
		char *more = realloc(data, capacity *= 2);

		if (!more) {
			err = -ENOMEM;
			break;
		}
		data = more;
		*len += fread(data + *len, 1, capacity - *len, in);
		if (ferror(in))
			err = errno ? -errno : -EIO;
	}
	fclose(in);
	if (err)
		free(data);
	else
		*bytes = data;
	return err;
}

int file_write(const char *path, const void *bytes, size_t len)
{
	FILE *out = fopen(path, "wbe");
	int err = 0;

	if (!out)
		return -errno;
	if (fwrite(bytes, 1, len, out) != len)
		err = errno ? -errno : -EIO;
	if (fclose(out) && !err)
		err = -errno;
	if (err)
		unlink(path);
	return err;
}
