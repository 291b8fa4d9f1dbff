/* SPDX-License-Identifier: MIT */
/* What the files of a test image with dispatchers share. */
#ifndef TEST_EXEC_DISPATCH_IMAGE_H
#define TEST_EXEC_DISPATCH_IMAGE_H

#include <shunt/dispatcher.h>

__attribute__((visibility("default"))) int dispatch_image_run(void);
/* dispatch_image_elsewhere.c: calls image_hook from a file that only declares it. */
uint64_t image_hook_elsewhere(uint64_t arg, const void *program);

#endif
