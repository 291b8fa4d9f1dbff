/* SPDX-License-Identifier: MIT */
/*
 * Packs: where generated code lives.
 *
 * An arena is one reserved address range, near the image whose helpers and stubs it serves, carved into 2 MiB packs. A code pack has
 * two views of the same bytes: written at rw, run at rx; no page is ever writable and executable, and unused bytes are traps.
 * Where an arm64 machine has BTI, an indirect branch into a pack must land on a `bti` instruction (clang -mbranch-protection=bti; shunt/jit.h
 * sees to it), else the process gets SIGILL. Blocks are rounded up to 64-byte chunks. Code is generated for its rx address, written at rw, finalized, and only then reachable.
 *
 *	struct shunt_block b;
 *	if (shunt_pack_alloc(NULL, SHUNT_SEGMENT_CODE, len, 0, &b) == 0) {
 *		memcpy(b.rw, code, len);
 *		shunt_pack_finalize(&b, 1);
 *		((int (*)(void))b.rx)();
 *		shunt_pack_free(&b);
 *	}
 *
 * Fork: the child gets packs of its own with the same content at the same addresses, at the cost of a copy before fork returns there;
 * until then allocations and patches of the parent wait, its programs and further forks do not. fork may be called inside a read
 * section; it waits for other threads' sections when a grace period is running. Where the child finds no memory for a pack, that pack's blocks run on there but nothing new is placed in it.
 */
#ifndef SHUNT_PACK_H
#define SHUNT_PACK_H

#include <stdbool.h>
#include <stdio.h>
#include <shunt/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_arena;

#define SHUNT_PACK_SIZE ((size_t)2 << 20)
#define SHUNT_CHUNK_SIZE ((size_t)64)

enum shunt_segment {
	SHUNT_SEGMENT_CODE,   /* rw: write, rx: read and execute */
	SHUNT_SEGMENT_RODATA, /* rw: write, rx: read only */
	SHUNT_SEGMENT_DATA,   /* rw == rx: private writable memory, not shared with a fork's child */
};
#define SHUNT_NR_SEGMENTS 3

enum shunt_backing { /* what a pack is made of, best first; the allocator takes the first that this machine allows */
	SHUNT_BACKING_MEMFD_NOEXEC_SEAL,
	SHUNT_BACKING_MEMFD_EXEC,
	SHUNT_BACKING_MEMFD,
	SHUNT_BACKING_SHARED_ANON, /* no file descriptor; the only one under RLIMIT_FSIZE; not sealed */
	SHUNT_BACKING_TOGGLE,      /* one view, rw == rx: a block's own pages are writable until it is finalized, then executable */
};

struct shunt_arena_options {
	size_t size;           /* bytes to reserve, a multiple of SHUNT_PACK_SIZE; 0: 1 GiB on x86-64, 64 MiB on arm64 */
	const void *near_addr; /* an address that code in the arena must reach by direct branches; NULL: libshunt's text */
	bool no_huge;          /* stay with base pages */
	bool hugetlb;          /* take 2 MiB pages from the system's pool first (vm.nr_hugepages); no host image shows its stubs from such a pack */
	bool no_guard;         /* arm64 with BTI: let indirect branches land anywhere, for code without landing pads (`bti c`) */
	bool anon;             /* skip memfd (perf resolves symbols in fd-less memory only) */
	/* For debuggers: rx views are private, so that a software breakpoint can be written there (into a sealed shared view it cannot).
	 * Weaker: this process could make such a view writable; a page with a breakpoint shows no longer what is written at rw until
	 * the block is finalized again or freed, so every block has pages of its own. */
	bool debug;
	/*
	 * One view only, for systems that deny memory a second one (they are given it without asking, and stats say so). A block has whole pages,
	 * written until shunt_pack_finalize and never after: then they are read and run (rodata: read). No page is writable and executable at
	 * once, and none that holds a live block changes. Without landing pads' guard, rw views to drop, or huge pages; debug is met by itself.
	 */
	bool toggle;
	/* Small blocks begin at places that cannot be guessed: each run of them lies anywhere in the free room of its pack. */
	bool random_start;
	/* So many freed blocks rest, filled, before the first of them may be handed out again: an address that somebody still knows, or that a
	 * branch predictor does, is not another program's at once. 0: 1,024; SHUNT_REST_NONE: none; 1,048,576 at most. At most a sixteenth of the
	 * arena rests, and nothing when there is no other room; a block never made reachable (shunt_pack_abandon) does not. */
	uint32_t rest;
};
#define SHUNT_REST_NONE UINT32_MAX

/* Reserves an arena; options may be NULL. -ENOMEM when no range of that size is free within reach of near_addr,
 * -EINVAL for a bad size. No pack is made before the first allocation. MT-safe. */
SHUNT_API int shunt_arena_create(const struct shunt_arena_options *options, struct shunt_arena **out);

/* Unmaps the arena. -EBUSY while blocks are allocated in it or waiting for their grace period (shunt_quiesce first). The caller
 * sees to it that no thread runs in it. Not for the default arena (-EINVAL). */
SHUNT_API int shunt_arena_destroy(struct shunt_arena *arena);

/* The process's default arena, made on the first call; its errors are those of shunt_arena_create. MT-safe. */
SHUNT_API int shunt_arena_default(struct shunt_arena **out);

/* An allocated block. id carries a generation: a second free, an interior or a foreign address is refused, never obeyed. */
struct shunt_block {
	void *rx;    /* where it runs (code), is read (rodata, data) */
	void *rw;    /* where it is written */
	size_t len;  /* usable bytes: the request rounded up to chunks */
	uint64_t id; /* opaque; 0 is no block */
};

/* Allocates size bytes (1 or more) aligned to align (0: 64; a power of two up to 4096) in arena (NULL: the default).
 * Code bytes are traps until written; rodata and data are zero. The block is the caller's until shunt_pack_free.
 * -ENOMEM: arena full or system out of memory; -EINVAL: size 0, bad alignment. MT-safe. */
SHUNT_API int shunt_pack_alloc(struct shunt_arena *arena, enum shunt_segment segment, size_t size, size_t align,
			       struct shunt_block *out);

/* Makes nr written code blocks runnable on every CPU: cache maintenance on rx and one SYNC_CORE for all of them where the machine
 * needs it (arm64); where rw == rx their pages become executable, and rodata blocks given here read-only. Returns 0, -EINVAL for a stale
 * or foreign block (then none is published), mprotect's errors (then those before it are). MT-safe. */
SHUNT_API int shunt_pack_finalize(const struct shunt_block *blocks, size_t nr);

/* Gives a block back. The caller has made it unreachable for new calls; its bytes become traps after a grace period, and are
 * handed out again only after that. -EINVAL: stale (double free), interior or foreign: nothing was done. MT-safe, never waits. */
SHUNT_API int shunt_pack_free(const struct shunt_block *block);

/* As shunt_pack_free, without a grace period: for a block that was never reachable (failure paths). MT-safe. */
SHUNT_API int shunt_pack_abandon(const struct shunt_block *block);

/* Shrinks a block that was not yet finalized to size bytes (in whole pages where it has such); block->len is updated. -EINVAL as for free,
 * or size 0 or larger. */
SHUNT_API int shunt_pack_shrink(struct shunt_block *block, size_t size);

/*
 * Takes away the rw views of all packs that arena (NULL: the default) has now: their bytes stay what they are, for good, and not even the
 * host can write them any more. Blocks in them run, are found and are freed as before, but what is freed there becomes neither traps nor
 * room until its whole pack is empty. Later blocks go to new packs. Not for an arena with dispatchers, whose stubs are patched as long as
 * they live; the caller writes nothing meanwhile. Errors are mmap's: the packs before the one refused have lost their rw view; -ENOTSUP where
 * rw == rx (option toggle). MT-safe.
 */
SHUNT_API int shunt_arena_drop_rw(struct shunt_arena *arena);

/* Which live block holds addr (either view)? 0 and *out (and *arena unless NULL), or -ENOENT. MT-safe. */
SHUNT_API int shunt_pack_find(const void *addr, struct shunt_block *out, struct shunt_arena **arena);

/* Calls fn for every live block of arena in address order until it returns non-zero, and returns that. fn must not allocate or
 * free in this arena. MT-safe. */
typedef int shunt_pack_walk_fn(void *user, enum shunt_segment segment, const struct shunt_block *block);
SHUNT_API int shunt_pack_walk(struct shunt_arena *arena, shunt_pack_walk_fn *fn, void *user);

/*
 * How the process's unwinder (C++ exceptions, backtrace(3), pthread_cancel) gets from a code block to its caller. shunt/jit.h does it for
 * what it loads. Set it before the block is reachable; it goes when the block does, after its grace period.
 */
struct shunt_unwind {
	const struct shunt_block *block;
	/* An .eh_frame section, relocated for where it lies, all its FDEs for code in the block, a zero word at its end. It is read until the
	 * block is gone: free the block that it is in after this one, never before; before giving back other memory, shunt_quiesce. */
	const void *eh_frame;
	size_t eh_frame_len;
	/* With eh_frame NULL: what an FDE for the whole block says, in DWARF's call frame instructions (code alignment 1, data alignment
	 * -8; at the block's first byte the caller has just called). They are copied. NULL: the code keeps a frame pointer like the
	 * compilers do (x86-64: push rbp; mov rbp, rsp; arm64: stp x29, x30 at the top of the frame, x29 pointing there), and all that it calls is
	 * called between its prologue and its epilogue. */
	const void *cfi;
	size_t cfi_len;
};

/* Tells the unwinder about nr blocks, all or none. Give many at once where you have them: a call costs some microseconds, a block in it a
 * tenth of one. -EINVAL: a stale or foreign block, one that has a table, a table that is damaged or for other code; -ENOMEM; -ENOTSUP: not
 * libgcc's unwinder. MT-safe. */
SHUNT_API int shunt_pack_set_unwind(const struct shunt_unwind *infos, size_t nr);

/* The NUMA node that a live block's memory is wanted on: that of the thread which allocated it, unless only others had room. The system's
 * number, 0 or above; -EINVAL for a stale or foreign block. Where a process may have memory on one node only, that one. MT-safe. */
SHUNT_API int shunt_pack_node(const struct shunt_block *block);

#define SHUNT_NODES_MAX 64

struct shunt_pack_stats {
	uint64_t nr_packs[SHUNT_NR_SEGMENTS];
	uint64_t nr_blocks[SHUNT_NR_SEGMENTS];
	uint64_t bytes_used[SHUNT_NR_SEGMENTS];   /* live blocks, in whole chunks */
	uint64_t bytes_mapped[SHUNT_NR_SEGMENTS]; /* packs */
	uint64_t bytes_huge;                      /* of the mapped code bytes: behind a 2 MiB page-table entry in the rx view */
	uint64_t bytes_pending;                   /* freed, waiting for their grace period */
	uint64_t bytes_resting;                   /* freed, filled, not handed out again yet (option rest) */
	uint32_t nr_nodes;                        /* NUMA nodes that blocks are placed by; 1: they are not */
	uint64_t bytes_by_node[SHUNT_NODES_MAX];  /* of the mapped bytes, by the system's node numbers; wanted there, where nr_nodes is above 1 */
	uint64_t bytes_metadata;
	uint64_t arena_size;
	const void *arena_base;
	enum shunt_backing backing;               /* of the newest pack */
	size_t page_size;                         /* base page of this machine */
};

/* What arena (NULL: the default) holds and what this machine gave. MT-safe. */
SHUNT_API int shunt_pack_get_stats(struct shunt_arena *arena, struct shunt_pack_stats *out);

/* Who learns the names of blocks; nobody before this is called. Bits may be added later. MT-safe. */
enum shunt_names {
	SHUNT_NAMES_PERF = 1, /* /tmp/perf-PID.map, for perf report; give the arena option anon too */
	SHUNT_NAMES_GDB = 2,  /* GDB's JIT interface: names in backtraces and for break (see the arena option debug) */
};
SHUNT_API int shunt_names_enable(unsigned names);

/* Names the code of a live block, for those who are to learn names: 0 and nothing done when nobody is. The name goes when the block is
 * freed. GDB also learns how to unwind the block, if shunt_pack_set_unwind was called before. A fork's child has perf's file for itself, with the
 * names that live in it. shunt/jit.h names the functions that it loads. -EINVAL for a stale or foreign block, -ENOMEM, errors of the map
 * file. MT-safe. */
SHUNT_API int shunt_pack_name(const struct shunt_block *block, const char *name);

/* The same for a block that holds several functions, all of them in one call. */
struct shunt_part {
	size_t offset, len; /* of the block's bytes */
	const char *name;
};
SHUNT_API int shunt_pack_name_parts(const struct shunt_block *block, const struct shunt_part *parts, size_t nr);

/* A word for each backing, for reports; never NULL. */
SHUNT_API const char *shunt_backing_name(enum shunt_backing backing);

#ifdef __cplusplus
}
#endif
#endif
