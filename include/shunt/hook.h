/* SPDX-License-Identifier: MIT */
/*
 * Hooks: places where a host calls a program that it does not name.
 *
 * A static hook has one program or none. A call is a direct call of the hook and a direct jump to the program, nothing is compared; without a
 * program the hook returns 0 at once.
 *
 *	SHUNT_HOOK_DEFINE(trace, int, (struct event *event))	// defines: int trace(struct event *event)
 *	...
 *	shunt_hook_attach(shunt_hook_trace(), prog, NULL);
 *	shunt_read_begin(); trace(&event); shunt_read_end();
 *	...
 *	shunt_hook_detach(shunt_hook_trace(), prog, &token);
 *	shunt_token_wait(token);				// no call runs in prog any more
 *
 * A multi-hook (SHUNT_MULTI_HOOK_DEFINE) runs every attached program by direct calls, in order of priority, each with the caller's
 * arguments, until one returns a result that it was not attached to continue on; that result is the hook's. When all have run it returns
 * the hook's verdict.
 *
 * Unlike a dispatcher's tree, a hook does not look at who is called: a program that was detached may run until every read section that
 * was open then has ended, which is what the token stands for. A program in a pack may be given to shunt_pack_free at once, which waits.
 */
#ifndef SHUNT_HOOK_H
#define SHUNT_HOOK_H

#include <stdbool.h>
#include <shunt/dispatcher.h>
#include <shunt/reader.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_hook;

#define SHUNT_HOOK_PROGRAMS_MAX 64u /* of a multi-hook */

/* The results, as bits, after which a multi-hook goes on to the next program. */
#define SHUNT_CONTINUE_ALWAYS UINT64_MAX         /* whatever the result is */
#define SHUNT_CONTINUE_ON(result) (1ull << (result)) /* 0 to 63; others stop */

struct shunt_hook_options {
	struct shunt_arena *arena; /* where the hook lives; NULL: the default arena. Outlives the hook */
	bool multi;
	uint32_t nr_args;          /* multi: integer or pointer arguments, at most 6 on x86-64, 8 on arm64 */
	uint32_t ret_len;          /* multi: bytes of the result: 1, 2, 4, 8 */
};

/* Makes a hook for generated code, which calls shunt_hook_entry(). Names are dispatchers' names, and one name space with them.
 * -EEXIST, -EINVAL, -ENOMEM. MT-safe. */
SHUNT_API int shunt_hook_create(const char *name, const struct shunt_hook_options *options, struct shunt_hook **out);

/* -EBUSY while a program is attached; -EPERM for one that a macro made. The caller sees to it that no thread calls it. MT-safe. */
SHUNT_API int shunt_hook_destroy(struct shunt_hook *hook);

/* The hook of that name, or NULL. MT-safe. */
SHUNT_API struct shunt_hook *shunt_hook_find(const char *name);

/* What a caller calls: a function of the hook's type. Constant for the hook's life. MT-safe. */
SHUNT_API const void *shunt_hook_entry(const struct shunt_hook *hook);

/* Where programs are in direct reach of the hook. NULL when a host image's stub could not be adopted. MT-safe. */
SHUNT_API struct shunt_arena *shunt_hook_arena(struct shunt_hook *hook);

struct shunt_hook_attach_options {
	int32_t priority;     /* multi: lower runs earlier, equal ones in order of attachment */
	uint64_t continue_on; /* multi: see above; 0: the program's result is always the hook's */
};

/*
 * Attaches program (its entry address), for calls that begin after the return at the latest. options: multi-hooks only, NULL is priority 0
 * and SHUNT_CONTINUE_ALWAYS. -EBUSY: a static hook has a program already (see replace), or a multi-hook SHUNT_HOOK_PROGRAMS_MAX;
 * -EEXIST: attached already; -ENOMEM. On failure the hook is as it was. A program out of direct reach of shunt_hook_arena() is called through
 * a veneer, an indirect jump to one place (nr_veneers of shunt_hook_get_stats). MT-safe, never waits for readers.
 */
SHUNT_API int shunt_hook_attach(struct shunt_hook *hook, const void *program, const struct shunt_hook_attach_options *options);

/* Puts `to` in the place of `from`, with its priority, in one patch; token, unless NULL, is for `from`. -ENOENT: not attached; others as for
 * attach. MT-safe, never waits. */
SHUNT_API int shunt_hook_replace(struct shunt_hook *hook, const void *from, const void *to, uint64_t *token);

/* Takes program away; token, unless NULL, is waited for before what it needs is given up. -ENOENT; -ENOMEM. MT-safe, never waits. */
SHUNT_API int shunt_hook_detach(struct shunt_hook *hook, const void *program, uint64_t *token);

/* What a multi-hook returns when every program has run, and when there is none; 0 at first. -EINVAL for a static hook. MT-safe. */
SHUNT_API int shunt_hook_set_verdict(struct shunt_hook *hook, uint64_t verdict);

struct shunt_hook_stats {
	uint32_t nr_programs;
	uint32_t code_len;     /* bytes between the entry and the programs: a multi-hook's calls, veneers; 0 while there are none */
	uint64_t nr_attaches;
	uint64_t nr_detaches;
	uint64_t nr_patches;
	const void *entry;
	const void *target;    /* where the entry jumps */
	uint32_t nr_veneers;   /* programs that are out of direct reach */
};
SHUNT_API void shunt_hook_get_stats(const struct shunt_hook *hook, struct shunt_hook_stats *out);

/* ---- in a host's own text ---------------------------------------------------------------------------------------- */

#define SHUNT_HOOK_LAYOUT 257 /* its page begins as a dispatcher's: slot at 0, what it does without programs at 32, traps from 48 on */

struct shunt_hook_record {
	struct shunt_dispatcher_record base;
	bool multi;
	uint32_t ret_len;
};

/* For the macros below. */
SHUNT_API int shunt_hook_register(struct shunt_hook_record *record);
SHUNT_API struct shunt_hook *shunt_hook_of(struct shunt_hook_record *record);

/*
 * SHUNT_HOOK_DEFINE(name, ret, (args)) in one file, C or C++ (outside of namespaces), SHUNT_HOOK_DECLARE in the others of the same executable
 * or library:
 *
 *	ret name(args);				calls the program, or returns 0
 *	struct shunt_hook *shunt_hook_name(void);	for attach and detach; NULL when the name was taken
 *
 * Both hidden. ret is an integer, a pointer or void; a static hook's arguments are whatever C can pass, a multi-hook's are 1 to 6 integers or
 * pointers on x86-64, 1 to 8 on arm64. Each hook takes a page of the image, as a dispatcher does.
 */
#define SHUNT_HOOK_DECLARE(name, ret, args)											\
	SHUNT_EXTERN SHUNT_HIDDEN ret name(SHUNT_UNWRAP args);									\
	SHUNT_EXTERN SHUNT_HIDDEN struct shunt_hook *shunt_hook_##name(void)

#define SHUNT_MULTI_HOOK_DECLARE(name, ret, args) SHUNT_HOOK_DECLARE(name, ret, args)

#ifdef __cplusplus
}
#endif

#if defined(__x86_64__)
#define SHUNT_HOOK_IDLE														\
	".byte 0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc,0xcc\n"				\
	".byte 0xf3,0x0f,0x1e,0xfa,0x31,0xc0,0xc3,0xcc\n" /* endbr64; xor eax, eax; ret */					\
	".balign 4096, 0xcc\n"
#elif defined(__aarch64__)
#define SHUNT_HOOK_IDLE														\
	".inst 0x0000cccc,0x0000cccc,0x0000cccc,0x0000cccc\n"									\
	".inst 0xd503245f,0xd2800000,0xd65f03c0,0x0000cccc\n" /* bti c; mov x0, #0; ret */					\
	".balignl 65536, 0x0000cccc\n"
#endif

#define SHUNT_HOOK_ASM(name)													\
	__asm__(".pushsection .shunt.stubs,\"ax\",%progbits\n" SHUNT_STUB_ALIGN							\
		".globl " #name "\n.hidden " #name "\n.type " #name ",%function\n" #name ":\n"					\
		".cfi_startproc\n" SHUNT_STUB_SLOT ".cfi_endproc\n"								\
		".size " #name ", 16\n"												\
		".cfi_startproc\n" SHUNT_HOOK_IDLE ".cfi_endproc\n"								\
		".popsection\n")

#ifdef __cplusplus
#define SHUNT_CHECK_HOOK_RET(ret)												\
	static_assert(shunt_is_word_ret<ret>::value, "a hook returns an integer of up to 64 bits, a pointer, or nothing");
#else
#define SHUNT_CHECK_HOOK_RET(ret)												\
	_Static_assert(_Generic((ret (*)(void))0, float (*)(void): 0, double (*)(void): 0, long double (*)(void): 0,		\
				float _Complex (*)(void): 0, double _Complex (*)(void): 0, long double _Complex (*)(void): 0,	\
				shunt_int128 (*)(void): 0, shunt_uint128 (*)(void): 0, default: 1),				\
		       "a hook returns an integer of up to 64 bits, a pointer, or nothing");					\
	SHUNT_CHECK_RET(ret)
#endif

#define SHUNT_HOOK_DEFINE_(hook, ret, args, is_multi, nr, len)									\
	SHUNT_HOOK_DECLARE(hook, ret, args);											\
	SHUNT_CHECK_HOOK_RET(ret)												\
	SHUNT_HOOK_ASM(hook);													\
	SHUNT_EXTERN SHUNT_HIDDEN const char shunt_hook_page_##hook[] __asm__(#hook);						\
	static struct shunt_hook_record shunt_hook_record_##hook =								\
		{ SHUNT_RECORD(SHUNT_HOOK_LAYOUT, nr, #hook, shunt_hook_page_##hook), is_multi, len };				\
	static __attribute__((constructor, used)) void shunt_enrol_##hook(void)							\
	{															\
		shunt_hook_register(&shunt_hook_record_##hook);									\
	}															\
	static __attribute__((destructor, used)) void shunt_dismiss_##hook(void)						\
	{															\
		shunt_dispatcher_unregister(&shunt_hook_record_##hook.base);							\
	}															\
	struct shunt_hook *shunt_hook_##hook(void)										\
	{															\
		return shunt_hook_of(&shunt_hook_record_##hook);								\
	}															\
	extern int shunt_needs_a_semicolon_##hook

#define SHUNT_HOOK_DEFINE(hook, ret, args) SHUNT_HOOK_DEFINE_(hook, ret, args, false, 0, 0)

#define SHUNT_MULTI_HOOK_DEFINE(hook, ret, args)										\
	SHUNT_STATIC_ASSERT(SHUNT_NR_ARGS args <= SHUNT_ARGS_MAX + 1, "multi-hook " #hook " has too many arguments for this CPU");	\
	SHUNT_EACH_ARG(SHUNT_CHECK_ARG, SHUNT_UNWRAP args)									\
	SHUNT_HOOK_DEFINE_(hook, ret, args, true, SHUNT_NR_ARGS args, sizeof(ret))

#endif
