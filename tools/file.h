/* SPDX-License-Identifier: MIT */
/* Whole files in and out, for the commands. */
#ifndef TOOLS_FILE_H
#define TOOLS_FILE_H

#include <stddef.h>

/* Reads all of path; the caller frees *bytes. 0 or a negative errno. */
int file_read(const char *path, void **bytes, size_t *len);
/* Writes path anew; an incomplete file is removed. 0 or a negative errno. */
int file_write(const char *path, const void *bytes, size_t len);

#endif
