/* SPDX-License-Identifier: MIT */
/*
 * Dispatchers defined in a host's own text, called from C by name; included by shunt/dispatcher.h.
 *
 *	SHUNT_DISPATCHER_DEFINE(xdp, unsigned, (void *ctx))	in one file, C or C++ (outside of namespaces)
 *	SHUNT_DISPATCHER_DECLARE(xdp, unsigned, (void *ctx))	in the other files of the same executable or library
 *
 * give
 *
 *	unsigned xdp(void *ctx, const void *prog);		calls the program at prog: unsigned prog(void *ctx)
 *	struct shunt_dispatcher *shunt_dispatcher_xdp(void);	for attach and detach; NULL when the name was taken (shunt_error)
 *
 * and the symbol shunt_stub.xdp for generated code. All three are hidden: they belong to one image. Other images find the
 * dispatcher by shunt_dispatcher_find("xdp") once this one is loaded.
 *
 * The program arrives as one more trailing integer argument, which the entry moves to the nest register and the program never
 * looks at. So there are 1 to 5 integer or pointer arguments on x86-64 and 1 to 7 on arm64, none of them a struct, a vector,
 * an __int128 or floating, and no struct is returned: anything else does not compile. In C++ enumerations and references go too. Any
 * extern "C" function of that type may be a program.
 *
 * Each dispatcher takes a page of the image (section .shunt.stubs). As linked, every call takes the fallback, an indirect
 * jump. The first attach replaces the page by an equal one whose stub can be patched; if that fails, attach says why and
 * calls go on.
 */
#ifndef SHUNT_DISPATCHER_DEFINE_H
#define SHUNT_DISPATCHER_DEFINE_H

#include <shunt/abi.h>

#ifdef __cplusplus
#include <type_traits>

extern "C" {
#endif

struct shunt_dispatcher;

/* The layout of a stub's page: slot at 0, C entry at 16, fallback at 32, traps from 48 on. A change of instructions is a new
 * number. */
#define SHUNT_DISPATCHER_LAYOUT 1
#define SHUNT_DISPATCHER_PAGE_USED 48

/* What a definition tells libshunt; static memory of the image. */
struct shunt_dispatcher_record {
	uint32_t layout;
	uint32_t nr_args;
	const char *name;
	const void *page;
	size_t page_len;
	struct shunt_dispatcher *dispatcher; /* libshunt's */
};

/* For the macros below: called when the image is loaded, about to be unloaded, and by shunt_dispatcher_NAME(). register: 0,
 * -EEXIST when the name is taken, -EINVAL, -ENOMEM. MT-safe, but unregister, which no call of this dispatcher's functions may
 * overlap. */
SHUNT_API int shunt_dispatcher_register(struct shunt_dispatcher_record *record);
SHUNT_API void shunt_dispatcher_unregister(struct shunt_dispatcher_record *record);
SHUNT_API struct shunt_dispatcher *shunt_dispatcher_of(struct shunt_dispatcher_record *record);

#define SHUNT_HIDDEN __attribute__((visibility("hidden")))
#define SHUNT_UNWRAP(...) __VA_ARGS__

#ifdef __cplusplus
}
#define SHUNT_EXTERN extern "C"
#else
#define SHUNT_EXTERN extern
#endif

#define SHUNT_DISPATCHER_DECLARE(name, ret, args)										\
	SHUNT_EXTERN SHUNT_HIDDEN ret name(SHUNT_UNWRAP args, const void *shunt_program);					\
	SHUNT_EXTERN SHUNT_HIDDEN struct shunt_dispatcher *shunt_dispatcher_##name(void)

/* SHUNT_NR_ARGS(a, b, c) is 3; SHUNT_EACH_ARG(m, a, b) is m(a) m(b). Up to 8, one more than any machine allows. */
#define SHUNT_NR_ARGS(...) SHUNT_TAKE_9TH(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define SHUNT_TAKE_9TH(a, b, c, d, e, f, g, h, i, ...) i
#define SHUNT_EACH_ARG(m, ...) SHUNT_EACH_ARG_(SHUNT_NR_ARGS(__VA_ARGS__), m, __VA_ARGS__)
#define SHUNT_EACH_ARG_(nr, m, ...) SHUNT_EACH_ARG__(nr, m, __VA_ARGS__)
#define SHUNT_EACH_ARG__(nr, m, ...) SHUNT_EACH_##nr(m, __VA_ARGS__)
#define SHUNT_EACH_1(m, a) m(a)
#define SHUNT_EACH_2(m, a, ...) m(a) SHUNT_EACH_1(m, __VA_ARGS__)
#define SHUNT_EACH_3(m, a, ...) m(a) SHUNT_EACH_2(m, __VA_ARGS__)
#define SHUNT_EACH_4(m, a, ...) m(a) SHUNT_EACH_3(m, __VA_ARGS__)
#define SHUNT_EACH_5(m, a, ...) m(a) SHUNT_EACH_4(m, __VA_ARGS__)
#define SHUNT_EACH_6(m, a, ...) m(a) SHUNT_EACH_5(m, __VA_ARGS__)
#define SHUNT_EACH_7(m, a, ...) m(a) SHUNT_EACH_6(m, __VA_ARGS__)
#define SHUNT_EACH_8(m, a, ...) m(a) SHUNT_EACH_7(m, __VA_ARGS__)

#ifdef __cplusplus

/* Of the type of a function that takes the argument: true when it goes in one integer register. A class does not, whatever it holds. */
template <typename Function> struct shunt_is_word_arg : std::false_type {};
template <typename Arg> struct shunt_is_word_arg<void(Arg)> {
	static const bool is_number = std::is_integral<Arg>::value || std::is_enum<Arg>::value;
	static const bool value = std::is_reference<Arg>::value || std::is_pointer<Arg>::value ||
				  (is_number && sizeof(typename std::conditional<is_number, Arg, char>::type) <= 8);
};
/* A result in rax or x0, or none. */
template <typename Ret> struct shunt_is_word_ret {
	static const bool value = shunt_is_word_arg<void(Ret)>::value;
};
template <> struct shunt_is_word_ret<void> {
	static const bool value = true;
};

#define SHUNT_STATIC_ASSERT static_assert
#define SHUNT_CHECK_ARG(arg)													\
	static_assert(shunt_is_word_arg<void(arg)>::value,									\
		      "an argument of a dispatcher is an integer of up to 64 bits, a pointer or a reference: " #arg);
#define SHUNT_CHECK_RET(ret)													\
	static_assert(shunt_is_word_ret<ret>::value || std::is_floating_point<ret>::value, "a dispatcher returns no struct");

#else

#define SHUNT_STATIC_ASSERT _Static_assert
__extension__ typedef __int128 shunt_int128;
__extension__ typedef unsigned __int128 shunt_uint128;

/*
 * One argument's declaration, checked through the type of a function that takes it. Floating and 128-bit types by name; a
 * struct, union or vector cannot be given a 0 ("incompatible type for argument" here means that).
 */
#define SHUNT_CHECK_ARG(arg)													\
	_Static_assert(_Generic((void (*)(arg))0, void (*)(float): 0, void (*)(double): 0, void (*)(long double): 0,		\
				void (*)(float _Complex): 0, void (*)(double _Complex): 0, void (*)(long double _Complex): 0,	\
				void (*)(shunt_int128): 0, void (*)(shunt_uint128): 0, default: 1),				\
		       "an argument of a dispatcher is an integer of up to 64 bits or a pointer: " #arg);			\
	_Static_assert(sizeof(((int (*)(arg))0)(0)) == sizeof(int), "a dispatcher takes no struct by value: " #arg);

/* A struct result may take an argument register for its address; a struct cannot be cast to. */
#define SHUNT_CHECK_RET(ret) _Static_assert(sizeof((void)(ret)0, 1) == sizeof(int), "a dispatcher returns no struct");

#endif

#if defined(__x86_64__)

#define SHUNT_ARGS_MAX 5
#define SHUNT_STUB_PAGE_LEN 4096
/* mov r10, the argument register after nr others. */
#define SHUNT_ENTRY_MOVE_1 "0x49,0x89,0xf2"
#define SHUNT_ENTRY_MOVE_2 "0x49,0x89,0xd2"
#define SHUNT_ENTRY_MOVE_3 "0x49,0x89,0xca"
#define SHUNT_ENTRY_MOVE_4 "0x4d,0x89,0xc2"
#define SHUNT_ENTRY_MOVE_5 "0x4d,0x89,0xca"
#define SHUNT_ENTRY_MOVE_6 SHUNT_ENTRY_MOVE_5 /* refused by the assertion on the number */
#define SHUNT_ENTRY_MOVE_7 SHUNT_ENTRY_MOVE_5
#define SHUNT_ENTRY_MOVE_8 SHUNT_ENTRY_MOVE_5
/* Bytes, not mnemonics: the page that replaces this one has the same instructions at the same offsets, whatever the assembler
 * prefers. */
#define SHUNT_STUB_SLOT														\
	".byte 0xf3,0x0f,0x1e,0xfa,0x0f,0x1f,0x40,0x00\n" /* endbr64; nop */							\
	".byte 0xe9,0x13,0x00,0x00,0x00,0xcc,0xcc,0xcc\n" /* jmp the fallback */
#define SHUNT_STUB_ENTRY(move)													\
	".byte 0xf3,0x0f,0x1e,0xfa," move "\n"											\
	".byte 0xe9,0xe4,0xff,0xff,0xff,0xcc,0xcc,0xcc,0xcc\n" /* jmp the slot */
#define SHUNT_STUB_FALLBACK													\
	".byte 0x41,0xff,0xe2,0xcc\n" /* jmp r10 */										\
	".balign 4096, 0xcc\n"
#define SHUNT_STUB_ALIGN ".balign 4096, 0xcc\n"

#elif defined(__aarch64__)

#define SHUNT_ARGS_MAX 7
#define SHUNT_STUB_PAGE_LEN 65536
/* mov x18, the argument register after nr others. */
#define SHUNT_ENTRY_MOVE_1 "0xaa0103f2"
#define SHUNT_ENTRY_MOVE_2 "0xaa0203f2"
#define SHUNT_ENTRY_MOVE_3 "0xaa0303f2"
#define SHUNT_ENTRY_MOVE_4 "0xaa0403f2"
#define SHUNT_ENTRY_MOVE_5 "0xaa0503f2"
#define SHUNT_ENTRY_MOVE_6 "0xaa0603f2"
#define SHUNT_ENTRY_MOVE_7 "0xaa0703f2"
#define SHUNT_ENTRY_MOVE_8 SHUNT_ENTRY_MOVE_7 /* refused by the assertion on the number */
#define SHUNT_STUB_SLOT														\
	".inst 0xd503245f,0xd503201f\n" /* bti c; nop */									\
	".inst 0x14000006,0x0000cccc\n" /* b the fallback */
#define SHUNT_STUB_ENTRY(move)													\
	".inst 0xd503245f," move ",0x17fffffa,0x0000cccc\n" /* bti c; mov; b the slot */
#define SHUNT_STUB_FALLBACK													\
	".inst 0xaa1203f0,0xd61f0200\n" /* mov x16, x18; br x16 */								\
	".balignl 65536, 0x0000cccc\n"
#define SHUNT_STUB_ALIGN ".balignl 65536, 0x0000cccc\n"

#else
#error "Shunt runs on x86-64 and arm64"
#endif

#define SHUNT_ENTRY_MOVE(nr) SHUNT_ENTRY_MOVE_(nr)
#define SHUNT_ENTRY_MOVE_(nr) SHUNT_ENTRY_MOVE_##nr

#define SHUNT_STUB_ASM(name, move)												\
	__asm__(".pushsection .shunt.stubs,\"ax\",%progbits\n" SHUNT_STUB_ALIGN							\
		".globl shunt_stub." #name "\n.hidden shunt_stub." #name "\n"							\
		".type shunt_stub." #name ",%function\n"									\
		"shunt_stub." #name ":\n"											\
		".cfi_startproc\n" SHUNT_STUB_SLOT ".cfi_endproc\n"								\
		".size shunt_stub." #name ", 16\n"										\
		".globl " #name "\n.hidden " #name "\n.type " #name ",%function\n" #name ":\n"					\
		".cfi_startproc\n" SHUNT_STUB_ENTRY(move) ".cfi_endproc\n"							\
		".size " #name ", 16\n"												\
		".cfi_startproc\n" SHUNT_STUB_FALLBACK ".cfi_endproc\n"								\
		".popsection\n")

/* In the order of struct shunt_dispatcher_record: C++ has no designated initializers before C++20. */
#define SHUNT_RECORD(layout, nr_args, name, page) { layout, nr_args, name, page, SHUNT_STUB_PAGE_LEN, NULL }

#define SHUNT_DISPATCHER_DEFINE(hook, ret, args)										\
	SHUNT_DISPATCHER_DECLARE(hook, ret, args);										\
	SHUNT_STATIC_ASSERT(SHUNT_NR_ARGS args <= SHUNT_ARGS_MAX, "dispatcher " #hook " has too many arguments for this CPU");	\
	SHUNT_EACH_ARG(SHUNT_CHECK_ARG, SHUNT_UNWRAP args)									\
	SHUNT_CHECK_RET(ret)													\
	SHUNT_STUB_ASM(hook, SHUNT_ENTRY_MOVE(SHUNT_NR_ARGS args));								\
	SHUNT_EXTERN SHUNT_HIDDEN const char shunt_stub_page_##hook[] __asm__("shunt_stub." #hook);				\
	static struct shunt_dispatcher_record shunt_record_##hook =								\
		SHUNT_RECORD(SHUNT_DISPATCHER_LAYOUT, SHUNT_NR_ARGS args, #hook, shunt_stub_page_##hook);			\
	static __attribute__((constructor, used)) void shunt_enrol_##hook(void)							\
	{															\
		shunt_dispatcher_register(&shunt_record_##hook);								\
	}															\
	static __attribute__((destructor, used)) void shunt_dismiss_##hook(void)						\
	{															\
		shunt_dispatcher_unregister(&shunt_record_##hook);								\
	}															\
	struct shunt_dispatcher *shunt_dispatcher_##hook(void)									\
	{															\
		return shunt_dispatcher_of(&shunt_record_##hook);								\
	}															\
	extern int shunt_needs_a_semicolon_##hook

#endif
