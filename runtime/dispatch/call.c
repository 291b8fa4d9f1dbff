/* SPDX-License-Identifier: MIT */
/*
 * Calls and callbacks by libffi. It passes a static chain in the register that is our nest register (r10; arm64 x18), so a call through a stub
 * is one of its "go" calls. A callback is a closure of libffi's, wherever it puts that, behind a slot and a veneer in a pack: dispatchers
 * reach the slot by direct jumps.
 */
#include <shunt/call.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/grace.h"
#include "runtime/log.h"
#include "runtime/pack/pack.h"
#include "runtime/dispatch/token.h"
#include "targets/target.h"

#ifdef SHUNT_HAVE_FFI

#include <ffi.h>

#ifndef FFI_GO_CLOSURES
#error "this libffi has no static chain"
#endif

static ffi_type *const types[] = {
	[SHUNT_TYPE_VOID] = &ffi_type_void, [SHUNT_TYPE_U8] = &ffi_type_uint8,   [SHUNT_TYPE_S8] = &ffi_type_sint8,
	[SHUNT_TYPE_U16] = &ffi_type_uint16, [SHUNT_TYPE_S16] = &ffi_type_sint16, [SHUNT_TYPE_U32] = &ffi_type_uint32,
	[SHUNT_TYPE_S32] = &ffi_type_sint32, [SHUNT_TYPE_U64] = &ffi_type_uint64, [SHUNT_TYPE_S64] = &ffi_type_sint64,
	[SHUNT_TYPE_F32] = &ffi_type_float,  [SHUNT_TYPE_F64] = &ffi_type_double, [SHUNT_TYPE_POINTER] = &ffi_type_pointer,
};

#define NR_TYPES ((int32_t)(sizeof(types) / sizeof(types[0])))

struct shunt_callback {
	struct shunt_grace_item grace;
	ffi_cif cif;
	ffi_type *args[SHUNT_SIGNATURE_ARGS_MAX];
	ffi_closure *closure;
	struct shunt_block block;
	shunt_callback_fn *fn;
	void *user;
};

/* args is what cif goes on to point to. */
static int prepare(const struct shunt_signature *signature, ffi_cif *cif, ffi_type **args)
{
	if (!signature || signature->nr_args > SHUNT_SIGNATURE_ARGS_MAX)
		return shunt_fail(EINVAL, "a signature has 0 to %d arguments", SHUNT_SIGNATURE_ARGS_MAX);
	if (signature->ret < 0 || signature->ret >= NR_TYPES)
		return shunt_fail(EINVAL, "result type %d is none of enum shunt_type", (int)signature->ret);
	for (uint32_t i = 0; i < signature->nr_args; i++) {
		if (signature->args[i] <= SHUNT_TYPE_VOID || signature->args[i] >= NR_TYPES)
			return shunt_fail(EINVAL, "argument %u cannot be of type %d", i, (int)signature->args[i]);
		args[i] = types[signature->args[i]];
	}
	if (ffi_prep_cif(cif, FFI_DEFAULT_ABI, signature->nr_args, types[signature->ret], args) != FFI_OK)
		return shunt_fail(EINVAL, "libffi does not take this signature");
	return 0;
}

static bool is_small_integer(const ffi_type *type)
{
	return type->size < sizeof(ffi_arg) && type->type != FFI_TYPE_FLOAT && type->type != FFI_TYPE_DOUBLE && type->type != FFI_TYPE_VOID;
}

int shunt_call(struct shunt_dispatcher *dispatcher, const void *program, const struct shunt_signature *signature,
	       const void *const *args, void *result)
{
	ffi_type *arg_types[SHUNT_SIGNATURE_ARGS_MAX];
	void *values[SHUNT_SIGNATURE_ARGS_MAX];
	union {
		ffi_arg word;
		double number;
	} wide = { 0 };
	ffi_cif cif;
	int err = prepare(signature, &cif, arg_types);

	if (err)
		return err;
	if (!dispatcher || !program || (signature->nr_args && !args) || (signature->ret != SHUNT_TYPE_VOID && !result))
		return shunt_fail(EINVAL, "a call needs a dispatcher, a program, its arguments and room for the result");
	for (uint32_t i = 0; i < signature->nr_args; i++)
		values[i] = (void *)(uintptr_t)args[i];
	ffi_call_go(&cif, FFI_FN((uintptr_t)shunt_dispatcher_stub(dispatcher)), &wide, values, (void *)(uintptr_t)program);
	/* Integers come back as whole words. Both CPUs are little endian. */
	if (signature->ret != SHUNT_TYPE_VOID)
		memcpy(result, &wide, cif.rtype->size);
	return 0;
}

static void on_call(ffi_cif *cif, void *result, void **args, void *user)
{
	const struct shunt_callback *callback = user;
	ffi_arg word = 0;

	if (!is_small_integer(cif->rtype)) {
		callback->fn(callback->user, result, (const void *const *)args);
		return;
	}
	/* The callee writes its type's bytes, libffi wants the word that they are. */
	callback->fn(callback->user, &word, (const void *const *)args);
	switch (cif->rtype->type) {
	case FFI_TYPE_SINT8:
		word = (ffi_arg)(ffi_sarg)(int8_t)word;
		break;
	case FFI_TYPE_SINT16:
		word = (ffi_arg)(ffi_sarg)(int16_t)word;
		break;
	case FFI_TYPE_SINT32:
		word = (ffi_arg)(ffi_sarg)(int32_t)word;
		break;
	default:
		break;
	}
	memcpy(result, &word, sizeof(word));
}

/* A landing pad and a direct jump to the absolute one behind it. */
static int make_entry(struct shunt_arena *arena, struct shunt_callback *callback, void *closure_code)
{
	const struct shunt_target *target = shunt_target_host();
	struct shunt_code code;
	int err = shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, SHUNT_CHUNK_SIZE, 0, &callback->block);

	if (err)
		return err;
	shunt_code_init(&code, callback->block.rw, callback->block.len, (uint64_t)(uintptr_t)callback->block.rx);
	target->emit_stub(&code, shunt_code_here(&code) + SHUNT_STUB_LEN);
	target->emit_veneer(&code, (uint64_t)(uintptr_t)closure_code);
	err = code.error ? shunt_fail(-code.error, "no jump to a callback could be made") : shunt_pack_finalize(&callback->block, 1);
	if (err)
		shunt_pack_abandon(&callback->block);
	return err;
}

int shunt_program_from_callback(struct shunt_arena *arena, const struct shunt_signature *signature, shunt_callback_fn *fn, void *user,
				struct shunt_callback **out)
{
	struct shunt_callback *callback;
	void *code = NULL;
	int err;

	if (!fn || !out)
		return shunt_fail(EINVAL, "a callback needs a function and a pointer to return it by");
	callback = calloc(1, sizeof(*callback));
	if (!callback)
		return shunt_fail(ENOMEM, "no memory for a callback");
	callback->fn = fn;
	callback->user = user;
	err = prepare(signature, &callback->cif, callback->args);
	if (err)
		goto out_free;
	callback->closure = ffi_closure_alloc(sizeof(*callback->closure), &code);
	if (!callback->closure || ffi_prep_closure_loc(callback->closure, &callback->cif, on_call, callback, code) != FFI_OK) {
		err = shunt_fail(ENOMEM, "libffi has no closure to give, its executable memory is refused or used up");
		goto out_closure;
	}
	err = make_entry(arena, callback, code);
	if (err)
		goto out_closure;
	*out = callback;
	return 0;
out_closure:
	if (callback->closure)
		ffi_closure_free(callback->closure);
out_free:
	free(callback);
	return err;
}

const void *shunt_callback_program(const struct shunt_callback *callback)
{
	return callback ? callback->block.rx : NULL;
}

static void release(struct shunt_grace_item *item)
{
	struct shunt_callback *callback = (struct shunt_callback *)item;

	ffi_closure_free(callback->closure);
	free(callback);
}

int shunt_callback_free(struct shunt_callback *callback, uint64_t *token)
{
	struct shunt_token_item *item = NULL;
	int err;

	if (!callback)
		return shunt_fail(EINVAL, "there is no callback to free");
	err = token ? shunt_token_prepare(&item) : 0;
	if (err)
		return err;
	err = shunt_pack_free(&callback->block);
	if (err) {
		free(item);
		return err;
	}
	callback->grace.release = release;
	shunt_grace_defer(&callback->grace);
	if (token)
		*token = shunt_token_queue(item);
	return 0;
}

#else /* no libffi */

static int missing(void)
{
	return shunt_fail(ENOTSUP, "libshunt was built without libffi: calls and callbacks by signature are not there");
}

int shunt_call(struct shunt_dispatcher *dispatcher, const void *program, const struct shunt_signature *signature,
	       const void *const *args, void *result)
{
	return missing();
}

int shunt_program_from_callback(struct shunt_arena *arena, const struct shunt_signature *signature, shunt_callback_fn *fn, void *user,
				struct shunt_callback **out)
{
	return missing();
}

const void *shunt_callback_program(const struct shunt_callback *callback)
{
	return NULL;
}

int shunt_callback_free(struct shunt_callback *callback, uint64_t *token)
{
	return missing();
}

#endif
