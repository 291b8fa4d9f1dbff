/* SPDX-License-Identifier: MIT */
/* The XDP context: every load of it that can be followed reads the 64-bit context, every other is refused with its instruction. */
#include <string.h>
#include <shunt/xdp.h>
#include "bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define CALL_SUB(o) INSN(BPF_JMP | BPF_CALL, 0, 1, 0, o)

static unsigned char frame[1024] __attribute__((aligned(16)));

static struct shunt_xdp_ctx context_of_frame(void)
{
	for (unsigned i = 0; i < sizeof(frame); i++)
		frame[i] = (unsigned char)(i * 7 + 1);
	return (struct shunt_xdp_ctx){ .data = frame + 256, .data_end = frame + 356, .data_meta = frame + 248, .data_hard_start = frame,
				       .data_hard_end = frame + sizeof(frame), .ingress_ifindex = 11, .rx_queue_index = 22, .egress_ifindex = 33 };
}

static uint32_t run_xdp(const struct bpf_insn *insns, size_t nr)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr, SHUNT_BPF_CONTEXT_XDP);
	bpf_xdp_fn *entry = (bpf_xdp_fn *)(uintptr_t)shunt_bpf_program_entry(shunt_bpf_find_program(object, "main"));
	struct shunt_xdp_ctx ctx = context_of_frame();
	uint32_t verdict;

	shunt_read_begin();
	verdict = entry(&ctx);
	shunt_read_end();
	shunt_bpf_close(object);
	return verdict;
}

#define RUN_XDP(...)                                                                                                           \
	({                                                                                                                     \
		const struct bpf_insn xdp_insns[] = { __VA_ARGS__ };                                                           \
		run_xdp(xdp_insns, NR(xdp_insns));                                                                             \
	})

/* r0 = first byte of the frame, which is 1 (256 * 7 + 1). r0 = data_end - data, which is 100. */
#define FIRST_BYTE(ctx) LOAD(BPF_W, 0, ctx, 0), LOAD(BPF_B, 0, 0, 0)
#define LENGTH(ctx) LOAD(BPF_W, 0, ctx, 4), LOAD(BPF_W, 5, ctx, 0), ALU64_REG(BPF_SUB, 0, 5)

#define REFUSES(place, reason, ...)                                                                                            \
	({                                                                                                                     \
		const char *sentence = REFUSAL(SHUNT_BPF_CONTEXT_XDP, __VA_ARGS__);                                            \
		cr_expect(strstr(sentence, "instruction " place ":") && strstr(sentence, reason), "'%s'", sentence);           \
	})

Test(bpf_context, every_field_is_read_and_pointers_have_64_bits)
{
	cr_expect_eq(RUN_XDP(FIRST_BYTE(1), EXIT()), 1u);
	cr_expect_eq(RUN_XDP(LENGTH(1), EXIT()), 100u);
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 0, 1, 0), LOAD(BPF_W, 2, 1, 8), ALU64_REG(BPF_SUB, 0, 2), EXIT()), 8u);
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 0, 1, 12), EXIT()), 11u);
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 0, 1, 16), EXIT()), 22u);
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 0, 1, 20), EXIT()), 33u);
}

Test(bpf_context, copies_constant_offsets_and_spills_are_followed)
{
	cr_expect_eq(RUN_XDP(MOV_REG(6, 1), MOV_REG(7, 6), CALL(5), FIRST_BYTE(7), EXIT()), 1u);
	cr_expect_eq(RUN_XDP(ALU64_IMM(BPF_ADD, 1, 8), ALU64_IMM(BPF_SUB, 1, 4), LOAD(BPF_W, 0, 1, 12), EXIT()), 22u);
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -24), CALL(5), LOAD(BPF_DW, 2, 10, -24), LENGTH(2), EXIT()), 100u);
	/* Spilled and reloaded by another register that points to the stack. */
	cr_expect_eq(RUN_XDP(MOV_REG(3, 10), ALU64_IMM(BPF_ADD, 3, -100), STORE(BPF_DW, 3, 1, 4), LOAD(BPF_DW, 2, 10, -96), LENGTH(2), EXIT()),
		     100u);
	/* The same context on both ways to a join. */
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 0, 1, 12), JUMP_IMM(BPF_JEQ, 0, 11, 2), MOV_REG(2, 1), JUMP(1), MOV_REG(2, 1), LENGTH(2), EXIT()), 100u);
}

Test(bpf_context, a_loop_that_spills_the_context_is_followed)
{
	cr_expect_eq(RUN_XDP(MOV_IMM(6, 5), MOV_IMM(7, 0), STORE(BPF_DW, 10, 1, -8),
			     /* loop: */ LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_W, 2, 1, 16), ALU64_REG(BPF_ADD, 7, 2), ALU64_IMM(BPF_SUB, 6, 1),
			     JUMP_IMM(BPF_JNE, 6, 0, -5), MOV_REG(0, 7), EXIT()), 110u);
}

Test(bpf_context, subprograms_get_it_as_an_argument_and_through_memory_of_the_caller)
{
	cr_expect_eq(RUN_XDP(MOV_REG(3, 1), MOV_IMM(1, 0), CALL_SUB(1), EXIT(), /* sub: */ LENGTH(3), EXIT()), 100u);
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), STORE_IMM(BPF_DW, 10, -8, 3), MOV_REG(1, 10), ALU64_IMM(BPF_ADD, 1, -16), CALL_SUB(1),
			     EXIT(), /* sub: */ LOAD(BPF_DW, 2, 1, 0), LOAD(BPF_DW, 3, 1, 8), LENGTH(2), ALU64_REG(BPF_ADD, 0, 3), EXIT()), 103u);
	/* Two levels down, and what a subprogram returns. */
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), MOV_REG(1, 10), ALU64_IMM(BPF_ADD, 1, -24), CALL_SUB(5), MOV_REG(2, 0), LENGTH(2), EXIT(),
			     /* one: */ ALU64_IMM(BPF_ADD, 1, 4), CALL_SUB(1), EXIT(), /* two: */ LOAD(BPF_DW, 0, 1, 4), EXIT()), 100u);
}

Test(bpf_context, callbacks_of_loops_get_it_through_their_data)
{
	struct bpf_insn body[] = {
		STORE(BPF_DW, 10, 1, -16), STORE_IMM(BPF_DW, 10, -8, 0), MOV_IMM(1, 4), LOAD_IMM64(2, 0), MOV_REG(3, 10), ALU64_IMM(BPF_ADD, 3, -16),
		MOV_IMM(4, 0), CALL(181), LOAD(BPF_DW, 0, 10, -8), EXIT(),
	};
	struct bpf_insn callback[] = {
		LOAD(BPF_DW, 1, 2, 0), LENGTH(1), LOAD(BPF_DW, 3, 2, 8), ALU64_REG(BPF_ADD, 3, 0), STORE(BPF_DW, 2, 3, 8), MOV_IMM(0, 0), EXIT(),
	};
	struct bpf_ref refs[] = { { .insn = 3, .kind = BPF_REF_FUNC, .index = 1 } };
	struct bpf_func funcs[] = {
		{ .name = "main", .is_program = true, .context = SHUNT_BPF_CONTEXT_XDP, .insns = body, .nr_insns = NR(body), .refs = refs, .nr_refs = 1 },
		{ .name = "callback", .insns = callback, .nr_insns = NR(callback) },
	};
	struct bpf_unit unit = { .name = "test", .funcs = funcs, .nr_funcs = 2 };
	struct shunt_xdp_ctx ctx = context_of_frame();
	struct bpf_run_unit run = bpf_run_unit(&unit);

	shunt_read_begin();
	cr_expect_eq(((bpf_xdp_fn *)(uintptr_t)shunt_jit_lookup(run.module, "main"))(&ctx), 400u);
	shunt_read_end();
	shunt_jit_remove(run.module);
}

Test(bpf_context, loads_of_other_sizes_and_places_are_refused)
{
	REFUSES("0", "plain 4-byte load", LOAD(BPF_DW, 0, 1, 0), EXIT());
	REFUSES("0", "plain 4-byte load", LOAD(BPF_H, 0, 1, 16), EXIT());
	REFUSES("1", "plain 4-byte load", MOV_IMM(0, 0), LOAD_SIGNED(BPF_W, 0, 1, 16), EXIT());
	REFUSES("0", "no field", LOAD(BPF_W, 0, 1, 24), EXIT());
	REFUSES("0", "no field", LOAD(BPF_W, 0, 1, 2), EXIT());
	REFUSES("1", "no field", ALU64_IMM(BPF_SUB, 1, 4), LOAD(BPF_W, 0, 1, 0), EXIT());
}

Test(bpf_context, stores_to_it_are_refused)
{
	REFUSES("0", "read-only", STORE_IMM(BPF_W, 1, 16, 1), EXIT());
	REFUSES("1", "read-only", MOV_REG(6, 1), STORE(BPF_W, 6, 2, 0), EXIT());
	REFUSES("0", "read-only", ATOMIC(BPF_W, BPF_ADD, 1, 2, 0), EXIT());
}

Test(bpf_context, loads_through_what_may_be_the_context_are_refused)
{
	REFUSES("3", "on some paths only", MOV_REG(2, 10), JUMP_IMM(BPF_JEQ, 3, 0, 1), MOV_REG(2, 1), LOAD(BPF_W, 0, 2, -4), EXIT());
	REFUSES("2", "on some paths only", LOAD(BPF_W, 2, 1, 16), ALU64_REG(BPF_ADD, 1, 2), LOAD(BPF_W, 0, 1, 0), EXIT());
	REFUSES("1", "computed from it", ALU32_REG(BPF_MOV, 2, 1), LOAD(BPF_W, 0, 2, 0), EXIT());
	/* A subprogram that is called with and without it. */
	REFUSES("0", "on some paths only", CALL_SUB(3), MOV_REG(1, 10), CALL_SUB(1), EXIT(), /* sub: */ LOAD(BPF_W, 0, 1, -8), EXIT());
	REFUSES("1", "caller's frame", MOV_REG(2, 10), CALL_SUB(1), EXIT(), /* sub: */ MOV_IMM(0, 0), STORE(BPF_DW, 2, 1, -8), EXIT());
}

Test(bpf_context, the_same_memory_without_the_context_is_left_alone)
{
	uint32_t mem[2] = { 7, 8 };

	cr_expect_eq(RUN(mem, 8, LOAD(BPF_W, 0, 1, 4), EXIT()), 8u, "the argument of a plain program is memory");
	cr_expect_eq(RUN_XDP(MOV_IMM(0, 6), JUMP_IMM(BPF_JEQ, 0, 5, 0), MOV_REG(2, 1), MOV_REG(2, 10), STORE_IMM(BPF_W, 2, -4, 9), LOAD(BPF_W, 0, 2, -4),
			     EXIT()), 9u);
}

Test(bpf_context, packet_pointers_cut_to_32_bits_are_lengths_but_not_addresses)
{
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 2, 1, 4), LOAD(BPF_W, 3, 1, 0), ALU32_REG(BPF_SUB, 2, 3), MOV_REG(0, 2), EXIT()), 100u);
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 2, 1, 4), LOAD(BPF_W, 3, 1, 0), ALU32_REG(BPF_MOV, 4, 3), ALU32_REG(BPF_SUB, 2, 4), MOV_REG(0, 2), EXIT()),
		     100u);
	REFUSES("2", "cut to 32 bits", LOAD(BPF_W, 2, 1, 0), ALU32_REG(BPF_MOV, 2, 2), LOAD(BPF_B, 0, 2, 0), EXIT());
	REFUSES("3", "cut to 32 bits", LOAD(BPF_W, 2, 1, 0), STORE(BPF_W, 10, 2, -4), LOAD(BPF_W, 2, 10, -4), STORE_IMM(BPF_B, 2, 0, 1), EXIT());
	REFUSES("3", "cut to 32 bits", LOAD(BPF_W, 2, 1, 0), LOAD(BPF_W, 3, 1, 4), ALU32_IMM(BPF_ADD, 2, 14), JUMP_REG(BPF_JGT, 2, 3, 0), EXIT());
	REFUSES("2", "cut to 32 bits", LOAD(BPF_W, 2, 1, 0), LOAD(BPF_W, 3, 1, 4), JUMP32_REG(BPF_JGT, 2, 3, 0), EXIT());
}

Test(bpf_context, frames_above_4_gigabytes_are_bounded_correctly)
{
	/* if (data + 14 > data_end) return 1; return data[12]; with a frame whose addresses have upper halves. */
	cr_expect_gt((uintptr_t)frame, 0xffffffffu, "the test needs a frame above 4 GiB");
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 2, 1, 4), LOAD(BPF_W, 1, 1, 0), MOV_REG(3, 1), ALU64_IMM(BPF_ADD, 3, 14), MOV_IMM(0, 1),
			     JUMP_REG(BPF_JGT, 3, 2, 1), LOAD(BPF_B, 0, 1, 12), EXIT()), (uint8_t)(268 * 7 + 1));
	cr_expect_eq(RUN_XDP(LOAD(BPF_W, 2, 1, 4), LOAD(BPF_W, 1, 1, 0), MOV_REG(3, 1), ALU64_IMM(BPF_ADD, 3, 101), MOV_IMM(0, 1),
			     JUMP_REG(BPF_JGT, 3, 2, 1), LOAD(BPF_B, 0, 1, 12), EXIT()), 1u);
}
