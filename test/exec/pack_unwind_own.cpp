// SPDX-License-Identifier: MIT
// Unwinding through code that a front end without LLVM wrote by hand: exceptions and backtraces, 10,000 programs of them, while others come and go.
// With the argument "tree": the same with the registration that newer unwinders get. C++, because only C++ throws.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <shunt/log.h>
#include <shunt/pack.h>
#include <shunt/reader.h>

#if defined(__x86_64__)
// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
// sub rsp, 24; call rdi; add rsp, 24; ret
static const unsigned char frameless[] = {0x48, 0x83, 0xec, 24, 0xff, 0xd7, 0x48, 0x83, 0xc4, 24, 0xc3};
// advance 4; the CFA is 32 above rsp; advance 6; 8 above
static const unsigned char frameless_cfi[] = {0x44, 0x0e, 32, 0x46, 0x0e, 8};
#else
// bti c; stp x29, x30, [sp, #-16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #16; ret
static const unsigned framed[] = {0xd503245f, 0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
// bti c; str x30, [sp, #-32]!; blr x0; ldr x30, [sp], #32; ret
static const unsigned frameless[] = {0xd503245f, 0xf81e0ffe, 0xd63f0000, 0xf84207fe, 0xd65f03c0};
// advance 8; the CFA is 32 above sp, x30 at its bottom; advance 8; 0 above, x30 where it was
static const unsigned char frameless_cfi[] = {0x48, 0x0e, 32, 0x9e, 4, 0x48, 0x0e, 0, 0xde};
#endif

// The unwinder's, with the trait that tells a tree from a list: what was found once is found again.
static bool pretend_tree;
extern "C" const void *_Unwind_Find_FDE(void *pc, void *bases)
{
	using fn = const void *(void *, void *);
	static fn *next = reinterpret_cast<fn *>(dlsym(RTLD_NEXT, "_Unwind_Find_FDE"));
	static std::atomic<void *> last_pc;
	static std::atomic<const void *> last_found;
	const void *found = next(pc, bases);

	if (!pretend_tree)
		return found;
	if (!found && pc == last_pc)
		return last_found.load();
	last_pc = pc;
	last_found = found;
	return found;
}

typedef void through_fn(void (*callback)());

static thread_local int nr_destroyed;
static thread_local void *frames[64];
static thread_local int nr_frames;

struct Guard {
	~Guard() { nr_destroyed++; }
};

static void thrower()
{
	Guard guard;

	throw std::runtime_error("from below");
}

static void tracer()
{
	nr_frames = backtrace(frames, 64);
}

static void fail(const char *what)
{
	std::printf("%s: %s\n", what, shunt_error());
	std::fflush(stdout);
	_exit(1);
}

template <typename Code> static shunt_block place(shunt_arena *arena, const Code &code)
{
	shunt_block block;

	if (shunt_pack_alloc(arena, SHUNT_SEGMENT_CODE, sizeof(code), 0, &block) != 0)
		fail("place");
	std::memcpy(block.rw, code, sizeof(code));
	if (shunt_pack_finalize(&block, 1) != 0)
		fail("place");
	return block;
}

static shunt_unwind table_of(const shunt_block &block, bool has_frame)
{
	shunt_unwind info = {};

	info.block = &block;
	if (!has_frame) {
		info.cfi = frameless_cfi;
		info.cfi_len = sizeof(frameless_cfi);
	}
	return info;
}

// Calls through block; the exception must arrive here, and the destructor below must have run.
__attribute__((noinline)) static bool throws_through(const shunt_block &block)
{
	int before = nr_destroyed;

	shunt_read_begin();
	try {
		reinterpret_cast<through_fn *>(block.rx)(thrower);
	} catch (const std::runtime_error &error) {
		shunt_read_end();
		return !std::strcmp(error.what(), "from below") && nr_destroyed == before + 1;
	}
	shunt_read_end();
	return false;
}

// The number of frames that a backtrace from below block finds above it; -1: block is not among them.
__attribute__((noinline)) static int frames_above(const shunt_block &block)
{
	reinterpret_cast<through_fn *>(block.rx)(tracer);
	for (int i = 0; i < nr_frames; i++)
		if (frames[i] >= block.rx && frames[i] < static_cast<char *>(block.rx) + block.len)
			return nr_frames - i - 1;
	return -1;
}

static void check_one_of_each(shunt_arena *arena)
{
	for (bool has_frame : {true, false}) {
		shunt_block block = has_frame ? place(arena, framed) : place(arena, frameless);
		shunt_unwind info = table_of(block, has_frame);
		char what[64];

		std::snprintf(what, sizeof(what), "code %s a frame pointer", has_frame ? "with" : "without");
		if (shunt_pack_set_unwind(&info, 1) != 0)
			fail(what);
		// frames_above, check_one_of_each and main at least
		if (frames_above(block) < 3 || !throws_through(block))
			fail(what);
		shunt_pack_free(&block);
	}
}

// Without a table the frame below is the last one that is found.
static void check_none(shunt_arena *arena)
{
	shunt_block block = place(arena, frameless);

	if (frames_above(block) > 0)
		fail("a frame without a table was unwound");
	shunt_pack_free(&block);
}

static double seconds_since(std::chrono::steady_clock::time_point start)
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static void check_many(shunt_arena *arena, size_t nr)
{
	std::vector<shunt_block> blocks;
	std::vector<shunt_unwind> infos;
	auto start = std::chrono::steady_clock::now();

	for (size_t i = 0; i < nr; i++)
		blocks.push_back(i % 2 ? place(arena, framed) : place(arena, frameless));
	for (size_t i = 0; i < nr / 2; i++)
		infos.push_back(table_of(blocks[i], i % 2));
	// Half of them at once, the others one by one.
	start = std::chrono::steady_clock::now();
	if (shunt_pack_set_unwind(infos.data(), infos.size()) != 0)
		fail("many at once");
	std::printf("%zu tables at once: %.0f ns each", infos.size(), seconds_since(start) / double(nr / 2) * 1e9);
	start = std::chrono::steady_clock::now();
	for (size_t i = nr / 2; i < nr; i++) {
		shunt_unwind info = table_of(blocks[i], i % 2);

		if (shunt_pack_set_unwind(&info, 1) != 0)
			fail("many one by one");
	}
	std::printf(", one by one %.0f ns each", seconds_since(start) / double(nr / 2) * 1e9);
	start = std::chrono::steady_clock::now();
	if (!throws_through(blocks[0]))
		fail("the first of many");
	std::printf("; first exception %.0f us", seconds_since(start) * 1e6);
	start = std::chrono::steady_clock::now();
	for (size_t i = 0; i < nr; i += 7)
		if (!throws_through(blocks[i]))
			fail("one of many");
	std::printf(", then %.2f us each", seconds_since(start) / double((nr + 6) / 7) * 1e6);
	start = std::chrono::steady_clock::now();
	for (size_t i = 0; i < nr; i += 3)
		shunt_pack_free(&blocks[i]);
	if (shunt_quiesce() != 0)
		fail("many freed");
	std::printf("; a third freed in %.0f us\n", seconds_since(start) * 1e6);
	for (size_t i = 0; i < nr; i++)
		if (i % 3 && i % 11 == 0 && !throws_through(blocks[i]))
			fail("one that was left of many");
	for (size_t i = 0; i < nr; i++)
		if (i % 3)
			shunt_pack_free(&blocks[i]);
}

// Threads unwind through programs that live while another makes and frees programs of the same pack.
static void check_threads(shunt_arena *arena)
{
	shunt_block lasting[] = {place(arena, framed), place(arena, framed)};
	std::vector<std::thread> threads;
	std::atomic<bool> stop{false};
	std::atomic<unsigned> nr_thrown{0};

	for (const shunt_block &block : lasting) {
		shunt_unwind info = table_of(block, true);

		if (shunt_pack_set_unwind(&info, 1) != 0)
			fail("threads");
	}
	threads.emplace_back([&] {
		while (!stop) {
			if (!throws_through(lasting[0]))
				fail("a thread's exception");
			nr_thrown++;
		}
	});
	// The same question, asked so often that a moment without an answer shows.
	threads.emplace_back([&] {
		void *bases[3];

		while (!stop)
			if (!_Unwind_Find_FDE(static_cast<char *>(lasting[1].rx) + 1, bases))
				fail("a thread's question");
	});
	for (int i = 0; i < 3000; i++) {
		shunt_block block = place(arena, frameless);
		shunt_unwind info = table_of(block, false);

		if (shunt_pack_set_unwind(&info, 1) != 0 || !throws_through(block))
			fail("a program that comes and goes");
		shunt_pack_free(&block);
	}
	stop = true;
	for (std::thread &thread : threads)
		thread.join();
	if (!nr_thrown)
		fail("no thread threw");
	for (const shunt_block &block : lasting)
		shunt_pack_free(&block);
}

static void check_fork(shunt_arena *arena)
{
#ifdef __SANITIZE_THREAD__
	return; // it ends a child that starts the reclaiming thread
#endif
	shunt_block block = place(arena, framed);
	shunt_unwind info = table_of(block, true);
	int status = 0;
	pid_t child;

	if (shunt_pack_set_unwind(&info, 1) != 0)
		fail("fork");
	child = fork();
	if (child == 0) {
		shunt_block own = place(arena, frameless);
		shunt_unwind own_info = table_of(own, false);

		if (!throws_through(block) || shunt_pack_set_unwind(&own_info, 1) != 0 || !throws_through(own))
			fail("a fork's child");
		shunt_pack_free(&block);
		if (shunt_quiesce() != 0 || !throws_through(own))
			fail("a fork's child, later");
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0 || !throws_through(block))
		fail("fork");
	shunt_pack_free(&block);
}

int main(int argc, char **argv)
{
	shunt_arena_options options = {};
	shunt_arena *arena;

	pretend_tree = argc > 1 && !std::strcmp(argv[1], "tree");
	options.size = 16 << 20;
	if (shunt_arena_create(&options, &arena) != 0)
		fail("arena");
	check_none(arena);
	check_one_of_each(arena);
	check_many(arena, 10000);
	check_threads(arena);
	check_fork(arena);
	if (shunt_quiesce() != 0 || shunt_arena_destroy(arena) != 0)
		fail("something is left");
	std::puts("exceptions and backtraces through handwritten code: work");
	return 0;
}
