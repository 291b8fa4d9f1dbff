// SPDX-License-Identifier: MIT
// LLVM's SectionMemoryManager, one a program with a code and an unwind section, as its linking layer uses it. The C API hides the class
// behind whole objects (peer_llvm_orc.c); used by itself here, it is measured without the parsing and linking of each.
#include <cstring>
#include <llvm/ExecutionEngine/SectionMemoryManager.h>

#include "bench/peer.h"

static const size_t unwind_len = 56;

static int open_peer(void)
{
	return 0;
}

static int install(const void *code, size_t len, struct peer_program *out)
{
	auto *manager = new llvm::SectionMemoryManager();
	void *text = manager->allocateCodeSection(len, 64, 0, ".text");
	void *unwind = manager->allocateDataSection(unwind_len, 8, 1, ".eh_frame", true);

	out->handle = manager;
	if (!text || !unwind) {
		delete manager;
		return -1;
	}
	memcpy(text, code, len);
	memset(unwind, 0, unwind_len);
	/* True is failure. */
	if (manager->finalizeMemory()) {
		delete manager;
		return -1;
	}
	out->rx = text;
	return 0;
}

static int release(struct peer_program *program)
{
	delete static_cast<llvm::SectionMemoryManager *>(program->handle);
	return 0;
}

extern "C" const struct peer peer_llvm = { "LLVM sections", open_peer, install, release, nullptr, nullptr, nullptr, 0 };
