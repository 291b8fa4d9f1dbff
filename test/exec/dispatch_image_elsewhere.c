/* SPDX-License-Identifier: MIT */
/* A file of the image that declares the dispatcher and defines one of five arguments, each of which must arrive. */
#include "test/exec/dispatch_image.h"

SHUNT_DISPATCHER_DECLARE(image_hook, uint64_t, (uint64_t arg));

uint64_t image_hook_elsewhere(uint64_t arg, const void *program)
{
	return image_hook(arg, program);
}
