/* SPDX-License-Identifier: MIT */
/* A listing for people: LLVM decodes, branch targets get names. */
#include "lib/jit/disassemble.h"

#include <errno.h>
#include <llvm-c/Core.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include "runtime/log.h"

struct listing {
	jit_symbol_name_fn *symbol;
	void *user;
};

static const char *name_target(void *user, uint64_t value, uint64_t *type, uint64_t pc, const char **name)
{
	struct listing *listing = user;
	const char *found = NULL;

	if (*type == LLVMDisassembler_ReferenceType_In_Branch && listing->symbol)
		found = listing->symbol(listing->user, value);
	*type = LLVMDisassembler_ReferenceType_InOut_None;
	*name = NULL;
	return found;
}

int jit_disassemble_for(const char *triple, const void *code, size_t len, uint64_t addr, jit_symbol_name_fn *symbol, void *user,
			FILE *out)
{
	struct listing listing = { symbol, user };
	LLVMDisasmContextRef disassembler;
	const uint8_t *bytes = code;
	size_t offset = 0;

	LLVMInitializeX86TargetInfo();
	LLVMInitializeX86TargetMC();
	LLVMInitializeX86Disassembler();
	LLVMInitializeAArch64TargetInfo();
	LLVMInitializeAArch64TargetMC();
	LLVMInitializeAArch64Disassembler();
	disassembler = LLVMCreateDisasm(triple, &listing, 0, NULL, name_target);
	if (!disassembler)
		return shunt_fail(ENOTSUP, "LLVM has no disassembler for '%s'", triple);
	LLVMSetDisasmOptions(disassembler, LLVMDisassembler_Option_PrintImmHex);
	while (offset < len) {
		char text[128];
		size_t used = LLVMDisasmInstruction(disassembler, (uint8_t *)bytes + offset, len - offset, addr + offset, text, sizeof(text));

		fprintf(out, "  %4zx:", offset);
		for (size_t i = 0; i < 10; i++)
			if (i < used)
				fprintf(out, " %02x", bytes[offset + i]);
			else
				fprintf(out, "   ");
		fprintf(out, " %s\n", used ? text : "\t(not an instruction)");
		if (!used)
			break;
		offset += used;
	}
	LLVMDisasmDispose(disassembler);
	return 0;
}

int jit_disassemble(const void *code, size_t len, jit_symbol_name_fn *symbol, void *user, FILE *out)
{
	char *triple = LLVMGetDefaultTargetTriple();
	int err = jit_disassemble_for(triple, code, len, (uintptr_t)code, symbol, user, out);

	LLVMDisposeMessage(triple);
	return err;
}
