/* SPDX-License-Identifier: MIT */
/*
 * Calls and programs whose signature is only known at run time, for hosts in other languages: through libffi.
 *
 * A signature is plain memory, so that a binding can lay it out itself: one int for the result, one for the number of arguments, then the
 * arguments' types.
 */
#ifndef SHUNT_CALL_H
#define SHUNT_CALL_H

#include <shunt/dispatcher.h>

#ifdef __cplusplus
extern "C" {
#endif

enum shunt_type {
	SHUNT_TYPE_VOID, /* results only */
	SHUNT_TYPE_U8, SHUNT_TYPE_S8, SHUNT_TYPE_U16, SHUNT_TYPE_S16, SHUNT_TYPE_U32, SHUNT_TYPE_S32, SHUNT_TYPE_U64, SHUNT_TYPE_S64,
	SHUNT_TYPE_F32, SHUNT_TYPE_F64, SHUNT_TYPE_POINTER,
};

#define SHUNT_SIGNATURE_ARGS_MAX 16

struct shunt_signature {
	int32_t ret;     /* enum shunt_type */
	uint32_t nr_args;
	int32_t args[SHUNT_SIGNATURE_ARGS_MAX];
};

/*
 * Calls program, of that signature, through the dispatcher: as a compiled caller would, with the program in the nest register, so that any
 * number and kind of argument goes. args[i] points to argument i, result to as many bytes as its type has (not looked at for VOID). Call
 * inside a read section. About 150 ns on top of the call. -EINVAL: a type does not exist or an argument is VOID; -ENOTSUP: libshunt was built
 * without libffi. MT-safe.
 */
SHUNT_API int shunt_call(struct shunt_dispatcher *dispatcher, const void *program, const struct shunt_signature *signature,
			 const void *const *args, void *result);

struct shunt_callback;

/* The host's function: args[i] points to argument i, result to the result's bytes. */
typedef void shunt_callback_fn(void *user, void *result, const void *const *args);

/*
 * Makes a program of that signature that calls fn. It lies in arena (NULL: the default), so that dispatchers reach it directly, and a thread
 * that calls it runs fn. -EINVAL, -ENOMEM, -ENOTSUP as above. MT-safe.
 */
SHUNT_API int shunt_program_from_callback(struct shunt_arena *arena, const struct shunt_signature *signature, shunt_callback_fn *fn,
					  void *user, struct shunt_callback **out);

/* The program's entry, to attach and to call. */
SHUNT_API const void *shunt_callback_program(const struct shunt_callback *callback);

/* Gives the program back; detached before. fn may be called until the read sections that are open now have ended: token, unless NULL, passes
 * then. MT-safe, never waits. */
SHUNT_API int shunt_callback_free(struct shunt_callback *callback, uint64_t *token);

#ifdef __cplusplus
}
#endif
#endif
