// SPDX-License-Identifier: MIT
// asmjit's JitAllocator, from the system's package: as it comes (one writable and executable view), and with two views.
#include <asmjit/core.h>
#include <cstring>

#include "bench/peer.h"

static asmjit::JitAllocator *allocator;

static int open_with(asmjit::JitAllocatorOptions options)
{
	asmjit::JitAllocator::CreateParams params;

	params.options = options;
	allocator = new asmjit::JitAllocator(&params);
	return 0;
}

static int open_rwx(void)
{
	return open_with(asmjit::JitAllocatorOptions::kNone);
}

static int open_dual(void)
{
	return open_with(asmjit::JitAllocatorOptions::kUseDualMapping);
}

static int install(const void *code, size_t len, struct peer_program *out)
{
	void *rw;

	if (allocator->alloc(&out->rx, &rw, len) != asmjit::kErrorOk)
		return -1;
	memcpy(rw, code, len);
	return 0;
}

static int release(struct peer_program *program)
{
	return allocator->release(program->rx) == asmjit::kErrorOk ? 0 : -1;
}

static size_t metadata(void)
{
	return allocator->statistics().overheadSize();
}

extern "C" const struct peer peer_asmjit_rwx = { "asmjit RWX", open_rwx, install, release, nullptr, metadata, nullptr, 0 };
extern "C" const struct peer peer_asmjit_dual = { "asmjit dual", open_dual, install, release, nullptr, metadata, nullptr, 0 };
