/* SPDX-License-Identifier: MIT */
/*
 * The names that generated code may use: the front end's own, the stubs of dispatchers, shunt/abi.h, and the functions that LLVM's code
 * generation calls without being asked. An explicit list and not the process's symbol table: a program that names anything else is
 * refused when it is added, not given whatever the host happens to export.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/rseq.h>
#include <shunt/dispatcher.h>
#include "runtime/log.h"

/* libgcc's, which have no header; only their addresses are used. */
#define LIBGCC_FUNCTIONS(X) \
	X(__divti3) X(__udivti3) X(__modti3) X(__umodti3) X(__multi3) X(__floattidf) X(__floattisf) X(__floatuntidf) X(__floatuntisf) \
	X(__fixdfti) X(__fixsfti) X(__fixunsdfti) X(__fixunssfti) X(__powidf2) X(__powisf2) X(__addtf3) X(__subtf3) X(__multf3) \
	X(__divtf3) X(__eqtf2) X(__netf2) X(__lttf2) X(__letf2) X(__gttf2) X(__getf2) X(__unordtf2) X(__extenddftf2) X(__extendsftf2) \
	X(__trunctfdf2) X(__trunctfsf2) X(__fixtfdi) X(__fixunstfdi) X(__floatditf) X(__floatunditf) X(__popcountdi2) \
	X(_Unwind_Resume) X(__stack_chk_fail)
#if defined(__x86_64__)
#define LIBGCC_TARGET_FUNCTIONS(X) X(__extendhfsf2) X(__truncsfhf2) X(__truncdfhf2)
#else
#define LIBGCC_TARGET_FUNCTIONS(X)
#endif
#define LIBC_FUNCTIONS(X) X(memcpy) X(memmove) X(memset) X(memcmp) X(bcmp) X(strlen)
#define LIBM_FUNCTIONS(X) \
	X(fmod) X(fmodf) X(floor) X(floorf) X(ceil) X(ceilf) X(trunc) X(truncf) X(rint) X(rintf) X(nearbyint) X(nearbyintf) \
	X(round) X(roundf) X(roundeven) X(roundevenf) X(fma) X(fmaf) X(fmin) X(fminf) X(fmax) X(fmaxf) X(pow) X(powf) X(exp) X(expf) \
	X(exp2) X(exp2f) X(log) X(logf) X(log2) X(log2f) X(log10) X(log10f) X(sin) X(sinf) X(cos) X(cosf) X(ldexp) X(ldexpf)
#define SHUNT_FUNCTIONS(X) \
	X(shunt_cpu_id) X(shunt_percpu_this) X(shunt_percpu_of) X(shunt_nr_cpus) \
	X(shunt_percpu_add64) X(shunt_percpu_add32) X(shunt_percpu_add16) X(shunt_percpu_add8) \
	X(shunt_map_lookup) X(shunt_map_lookup_of) X(shunt_map_find_percpu) X(shunt_map_find_hash) X(shunt_map_update) X(shunt_map_delete)

#define DECLARE(name) void jit_libgcc_##name(void) __asm__(#name);
LIBGCC_FUNCTIONS(DECLARE)
LIBGCC_TARGET_FUNCTIONS(DECLARE)

static const struct {
	const char *name;
	const void *address;
} builtins[] = {
#define OTHERS(name) { #name, (const void *)name },
#define LIBGCCS(name) { #name, (const void *)jit_libgcc_##name },
	{ "__rseq_offset", &__rseq_offset }, /* code that was compiled ahead of time finds the CPU's number through it */
	SHUNT_FUNCTIONS(OTHERS)
	LIBC_FUNCTIONS(OTHERS)
	LIBGCC_FUNCTIONS(LIBGCCS)
	LIBGCC_TARGET_FUNCTIONS(LIBGCCS)
	LIBM_FUNCTIONS(OTHERS)
};

const void *jit_symbol_builtin(const char *name)
{
	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++)
		if (!strcmp(builtins[i].name, name))
			return builtins[i].address;
	return NULL;
}

int jit_symbol_resolve(const char *name, const struct shunt_jit_symbol *symbols, size_t nr_symbols, uint64_t *address)
{
	const size_t prefix = strlen(SHUNT_STUB_PREFIX);
	const void *found;

	for (size_t i = 0; i < nr_symbols; i++) {
		if (!strcmp(symbols[i].name, name)) {
			*address = (uintptr_t)symbols[i].address;
			return 0;
		}
	}
	if (!strncmp(name, SHUNT_STUB_PREFIX, prefix)) {
		const struct shunt_dispatcher *dispatcher = shunt_dispatcher_find(name + prefix);

		if (!dispatcher)
			return shunt_fail(ENOENT, "the module calls through dispatcher '%s', which does not exist: make it before adding the module",
					  name + prefix);
		*address = (uintptr_t)shunt_dispatcher_stub(dispatcher);
		return 0;
	}
	found = jit_symbol_builtin(name);
	if (!found)
		return shunt_fail(ENOENT, "symbol '%s' is undefined: define it in the module or give its address in the module's symbols", name);
	*address = (uintptr_t)found;
	return 0;
}
