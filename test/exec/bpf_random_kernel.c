/* SPDX-License-Identifier: MIT */
/*
 * Random XDP programs, compiled here and run by the kernel (BPF_PROG_TEST_RUN) on the same random frames: the same verdict and the same frame come
 * out. Some that the verifier cannot follow within its limits are left out; that most are taken is asserted. A failure prints its seed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <shunt/xdp.h>
#include "bpf_random_program.h"

#define NR_PROGRAMS 250
#define NR_FRAMES 4

/* r6 = data; out with verdict 0 when the frame has fewer than BPF_RANDOM_MEM bytes */
static const struct bpf_insn entry[] = {
	LOAD(BPF_W, 6, 1, 0),  LOAD(BPF_W, 3, 1, 4), MOV_REG(2, 6), ALU64_IMM(BPF_ADD, 2, BPF_RANDOM_MEM), JUMP_REG(BPF_JLE, 2, 3, 2),
	MOV_IMM(0, 0), EXIT(),
};
static const struct bpf_random_rules rules = { .entry = entry, .nr_entry = sizeof(entry) / sizeof(entry[0]), .verifiable = true };

/* A file descriptor, or a negative errno. */
static int load(const struct bpf_insn *insns, size_t nr)
{
	int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "random", "GPL", insns, nr, NULL);

	return fd < 0 ? -errno : fd;
}

static uint32_t run_here(bpf_xdp_fn *program, unsigned char *frame)
{
	unsigned char room[SHUNT_XDP_HEADROOM + BPF_RANDOM_MEM];
	struct shunt_xdp_ctx ctx = {
		.data = room + SHUNT_XDP_HEADROOM,
		.data_end = room + sizeof(room),
		.data_meta = room + SHUNT_XDP_HEADROOM,
		.data_hard_start = room,
		.data_hard_end = room + sizeof(room),
	};
	uint32_t verdict;

	memset(room, 0, SHUNT_XDP_HEADROOM);
	memcpy(ctx.data, frame, BPF_RANDOM_MEM);
	shunt_read_begin();
	verdict = program(&ctx);
	shunt_read_end();
	memcpy(frame, ctx.data, BPF_RANDOM_MEM);
	return verdict;
}

static uint32_t run_in_kernel(int fd, unsigned char *frame, unsigned long long program_seed)
{
	unsigned char out[BPF_RANDOM_MEM];
	LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = BPF_RANDOM_MEM, .data_out = out, .data_size_out = sizeof(out));

	cr_assert_eq(bpf_prog_test_run_opts(fd, &options), 0, "seed %llu: %s", program_seed, strerror(errno));
	cr_assert_eq(options.data_size_out, BPF_RANDOM_MEM);
	memcpy(frame, out, BPF_RANDOM_MEM);
	return options.retval;
}

static void compare(const struct bpf_insn *insns, size_t nr, int fd, unsigned long long program_seed)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr, SHUNT_BPF_CONTEXT_XDP);
	bpf_xdp_fn *program = (bpf_xdp_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));

	for (int i = 0; i < NR_FRAMES; i++) {
		uint64_t here[BPF_RANDOM_MEM / 8], there[BPF_RANDOM_MEM / 8];
		uint32_t verdict, wanted;

		bpf_random_fill(here);
		memcpy(there, here, sizeof(there));
		verdict = run_here(program, (unsigned char *)here);
		wanted = run_in_kernel(fd, (unsigned char *)there, program_seed);
		cr_assert_eq(verdict, wanted, "seed %llu: verdict %x, the kernel's %x", program_seed, verdict, wanted);
		cr_assert_eq(memcmp(here, there, sizeof(here)), 0, "seed %llu: frames differ", program_seed);
	}
	shunt_bpf_close(object);
}

Test(bpf_random_kernel, compiled_programs_do_what_the_kernel_does)
{
	struct bpf_insn insns[BPF_RANDOM_MAX_INSNS] = { MOV_IMM(0, 0), EXIT() };
	int fd = load(insns, 2), nr_taken = 0;

	if (fd < 0)
		cr_skip_test("the kernel loads no BPF program here: %s", strerror(-fd));
	close(fd);
	for (unsigned long long program_seed = 1; program_seed <= NR_PROGRAMS; program_seed++) {
		size_t nr;

		bpf_random_seed(program_seed);
		nr = bpf_random_program(&rules, insns);
		fd = load(insns, nr);
		if (fd < 0)
			continue;
		nr_taken++;
		compare(insns, nr, fd, program_seed);
		close(fd);
	}
	cr_assert_gt(nr_taken, NR_PROGRAMS * 3 / 4, "the verifier took %d of %d programs", nr_taken, NR_PROGRAMS);
	printf("%d programs on %d frames each, as in the kernel\n", nr_taken, NR_FRAMES);
}
