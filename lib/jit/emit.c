/* SPDX-License-Identifier: MIT */
/*
 * Objects for another process: the same passes, checks and code generation as for this one, but nothing of this process in the result. No
 * address is folded, the CPU number is found through glibc's own symbols, and code is generated for the plain CPU of its architecture.
 */
#include "lib/jit/emit.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Target.h>
#include "lib/jit/jit_internal.h"
#include "runtime/log.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#else
#define OWN_MACHINE EM_AARCH64
#endif

static pthread_once_t targets_once = PTHREAD_ONCE_INIT;

static void init_targets(void)
{
	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86Target();
	LLVMInitializeX86TargetMC();
	LLVMInitializeX86AsmPrinter();
	LLVMInitializeX86AsmParser();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64Target();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64AsmPrinter();
	LLVMInitializeAArch64AsmParser();
}

static bool is_our_machine(const char *triple)
{
	return (!strncmp(triple, "x86_64-", 7) || !strncmp(triple, "aarch64-", 8)) && strstr(triple, "-linux-gnu");
}

int jit_emitter_create(const char *triple, unsigned opt_level, struct shunt_jit **out)
{
	struct shunt_jit *emitter;
	LLVMTargetMachineRef machine;
	LLVMTargetDataRef layout;

	if (opt_level > 3)
		return shunt_fail(EINVAL, "opt_level %u: LLVM has 0 to 3", opt_level);
	if (!is_our_machine(triple))
		return shunt_fail(ENOTSUP, "target '%s' is neither x86_64-linux-gnu nor aarch64-linux-gnu", triple);
	pthread_once(&targets_once, init_targets);
	emitter = calloc(1, sizeof(*emitter));
	if (!emitter)
		return shunt_fail(ENOMEM, "out of memory for a compiler");
	emitter->opt_level = opt_level;
	emitter->elsewhere = true;
	emitter->triple = LLVMNormalizeTargetTriple(triple);
	emitter->cpu = LLVMCreateMessage(!strncmp(triple, "x86_64", 6) ? "x86-64" : "generic");
	emitter->features = LLVMCreateMessage("");
	machine = jit_target_machine(emitter);
	if (!machine) {
		jit_emitter_destroy(emitter);
		return shunt_fail(ENOTSUP, "this LLVM has no code generator for '%s'", triple);
	}
	layout = LLVMCreateTargetDataLayout(machine);
	emitter->data_layout = LLVMCopyStringRepOfTargetData(layout);
	LLVMDisposeTargetData(layout);
	LLVMDisposeTargetMachine(machine);
	*out = emitter;
	return 0;
}

void jit_emitter_destroy(struct shunt_jit *emitter)
{
	if (!emitter)
		return;
	LLVMDisposeMessage(emitter->triple);
	LLVMDisposeMessage(emitter->cpu);
	LLVMDisposeMessage(emitter->features);
	LLVMDisposeMessage(emitter->data_layout);
	free(emitter);
}

int jit_emitter_emit(const struct shunt_jit *emitter, LLVMContextRef context, LLVMModuleRef llvm_module,
		     const struct shunt_jit_module_options *options, struct shunt_pass_counts *counts, LLVMMemoryBufferRef *object)
{
	static const char flag[] = "branch-target-enforcement";
	struct shunt_jit_module module = { 0 };
	int err;

	/* A linker marks its output for guarded pages only when all of its input is marked. */
	if (!strncmp(emitter->triple, "aarch64", 7) && !LLVMGetModuleFlag(llvm_module, flag, strlen(flag)))
		LLVMAddModuleFlag(llvm_module, LLVMModuleFlagBehaviorWarning, flag, strlen(flag),
				  LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(context), 1, false)));
	err = jit_compile(emitter, context, llvm_module, options, &module, object);

	LLVMDisposeModule(llvm_module);
	LLVMContextDispose(context);
	LLVMDisposeMessage(module.ir);
	if (!err)
		*counts = module.counts;
	return err;
}

/* Offsets and counts are checked here; what jit_object_read and LLVM's linker read lies inside. */
static int check_object(const void *bytes, size_t len)
{
	const Elf64_Ehdr *header = bytes;
	const Elf64_Shdr *sections;

	if (len < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_type != ET_REL)
		return shunt_fail(EINVAL, "the code is not an ELF object (relocatable, 64-bit): use what 'shunt compile -o NAME.o' wrote");
	if (header->e_machine != OWN_MACHINE)
		return shunt_fail(EINVAL, "the code was compiled for another machine (ELF machine %u, this one is %u): compile it for this one",
				  header->e_machine, OWN_MACHINE);
	if (!header->e_shnum || header->e_shentsize != sizeof(*sections) || header->e_shoff % 8 || header->e_shoff > len ||
	    header->e_shnum > (len - header->e_shoff) / sizeof(*sections))
		return shunt_fail(EINVAL, "the code's section table lies outside the object");
	sections = (const void *)((const char *)bytes + header->e_shoff);
	for (unsigned i = 0; i < header->e_shnum; i++) {
		const Elf64_Shdr *section = &sections[i];
		const Elf64_Shdr *names = section->sh_link < header->e_shnum ? &sections[section->sh_link] : NULL;

		if (section->sh_type != SHT_NOBITS && (section->sh_offset > len || section->sh_size > len - section->sh_offset))
			return shunt_fail(EINVAL, "section %u of the code lies outside the object", i);
		if (section->sh_type != SHT_SYMTAB)
			continue;
		if (!names || names->sh_type != SHT_STRTAB || !names->sh_size || names->sh_offset > len ||
		    names->sh_size > len - names->sh_offset || section->sh_offset % 8 ||
		    ((const char *)bytes)[names->sh_offset + names->sh_size - 1])
			return shunt_fail(EINVAL, "the code's symbol table has no table of names");
		for (size_t s = 0; s < section->sh_size / sizeof(Elf64_Sym); s++)
			if (((const Elf64_Sym *)((const char *)bytes + section->sh_offset))[s].st_name >= names->sh_size)
				return shunt_fail(EINVAL, "symbol %zu of the code has a name outside the table of names", s);
	}
	return 0;
}

int jit_each_undefined(const void *bytes, size_t len, int (*fn)(void *user, const char *name), void *user)
{
	struct jit_object_symbols symbols;
	int err = check_object(bytes, len);

	if (!err)
		err = jit_object_read(bytes, len, &symbols);
	if (err)
		return err;
	for (size_t i = 0; i < symbols.nr_undefined && !err; i++)
		err = fn(user, symbols.undefined[i].name);
	jit_object_fini(&symbols);
	return err;
}

int jit_load_object(struct shunt_jit *jit, const void *bytes, size_t len, const struct shunt_jit_module_options *options,
		    struct shunt_jit_module **out)
{
	LLVMMemoryBufferRef object;
	int err = check_object(bytes, len);

	if (err)
		return err;
	object = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes, len, "code");
	return jit_add_object(jit, object, options, out);
}
