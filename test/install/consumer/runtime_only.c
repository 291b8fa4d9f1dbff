/* SPDX-License-Identifier: MIT */
/* A host without LLVM: puts bytes of its own in a pack, attaches and calls them through a dispatcher in its own text. */
#include <stdio.h>
#include <string.h>
#include <shunt/dispatcher.h>
#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

SHUNT_DISPATCHER_DEFINE(hook, unsigned, (void *ctx));

#if defined(__x86_64__)
static const unsigned char return_42[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 42, 0, 0, 0, 0xc3 }; /* endbr64; mov eax, 42; ret */
#elif defined(__aarch64__)
static const unsigned return_42[] = { 0xd503245f, 0x52800540, 0xd65f03c0 }; /* bti c; mov w0, 42; ret */
#endif

int main(void)
{
	struct shunt_dispatcher_stats stats;
	struct shunt_block block;
	unsigned got;

	if (shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, sizeof(return_42), 0, &block))
		goto failed;
	memcpy(block.rw, return_42, sizeof(return_42));
	if (shunt_pack_finalize(&block, 1) || shunt_dispatcher_attach(shunt_dispatcher_hook(), block.rx))
		goto failed;
	shunt_read_begin();
	got = hook(NULL, block.rx);
	shunt_read_end();
	shunt_dispatcher_get_stats(shunt_dispatcher_hook(), &stats);
	printf("the program returned %u, tree of %u bytes\n", got, stats.tree_len);
	if (shunt_dispatcher_detach(shunt_dispatcher_hook(), block.rx) || shunt_pack_free(&block) || shunt_quiesce())
		goto failed;
	return got == 42 && stats.nr_programs == 1 ? 0 : 1;
failed:
	fprintf(stderr, "%s\n", shunt_error());
	return 1;
}
