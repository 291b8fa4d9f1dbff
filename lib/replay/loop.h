/* SPDX-License-Identifier: MIT */
/*
 * The receive loop: generated code that calls each frame's program through the dispatcher, as a driver's receive function does. Its program call
 * is marked, so shunt-dispatch makes it a direct call of the stub.
 */
#ifndef LIB_REPLAY_LOOP_H
#define LIB_REPLAY_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/jit.h>
#include <shunt/xdp.h>

/* Calls *program, read anew for each frame as a driver reads its queue's program, on nr contexts. Call it in a read section. */
typedef void shunt_replay_loop_fn(const void *const *program, struct shunt_xdp_ctx *const *contexts, size_t nr, uint32_t *verdicts);

/* Compiles the loop for the dispatcher of that name with jit. with_passes false leaves the indirect call as it is. *module is the
 * caller's to shunt_jit_remove. Errors are those of shunt_jit_add. */
int shunt_replay_loop_compile(struct shunt_jit *jit, const char *dispatcher, const char *pipeline, shunt_remark_fn *remark, void *remark_user,
			      struct shunt_jit_module **module, shunt_replay_loop_fn **loop);

#endif
