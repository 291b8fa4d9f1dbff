/* SPDX-License-Identifier: MIT */
/* What others store in a frame: subprograms, callbacks and helpers that overwrite an address or the context there. */
#include <string.h>
#include <shunt/xdp.h>
#include "bpf_run.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define CALL_SUB(o) INSN(BPF_JMP | BPF_CALL, 0, 1, 0, o)
#define STACK(reg, off) MOV_REG(reg, 10), ALU64_IMM(BPF_ADD, reg, off)

static unsigned char frame[512] __attribute__((aligned(16)));

static uint32_t call_xdp(const void *entry)
{
	struct shunt_xdp_ctx ctx = { .data = frame + 256, .data_end = frame + 356, .data_meta = frame + 256, .data_hard_start = frame,
				     .data_hard_end = frame + sizeof(frame), .ingress_ifindex = 11, .rx_queue_index = 22 };
	uint32_t verdict;

	for (unsigned i = 0; i < sizeof(frame); i++)
		frame[i] = (unsigned char)i;
	shunt_read_begin();
	verdict = ((bpf_xdp_fn *)(uintptr_t)entry)(&ctx);
	shunt_read_end();
	return verdict;
}

static uint32_t run_xdp(const struct bpf_insn *insns, size_t nr)
{
	struct shunt_bpf_object *object = bpf_run_open(insns, nr, SHUNT_BPF_CONTEXT_XDP);
	uint32_t verdict = call_xdp(shunt_bpf_program_entry(shunt_bpf_find_program(object, "main")));

	shunt_bpf_close(object);
	return verdict;
}

#define RUN_XDP(...)                                                                                                           \
	({                                                                                                                     \
		const struct bpf_insn xdp_insns[] = { __VA_ARGS__ };                                                           \
		run_xdp(xdp_insns, NR(xdp_insns));                                                                             \
	})

#define REFUSES(place, ...)                                                                                                    \
	({                                                                                                                     \
		const char *sentence = REFUSAL(SHUNT_BPF_CONTEXT_XDP, __VA_ARGS__);                                            \
		cr_expect(strstr(sentence, "instruction " place ":") && strstr(sentence, "may have been stored"), "'%s'", sentence); \
	})

/* main's slot at -8 holds the address of -16 (5); -24 holds 6. */
#define TWO_VALUES()                                                                                                           \
	STORE_IMM(BPF_DW, 10, -16, 5), STORE_IMM(BPF_DW, 10, -24, 6), STACK(2, -16), STORE(BPF_DW, 10, 2, -8)

Test(bpf_stack, an_address_that_a_subprogram_replaces_is_the_new_one)
{
	cr_expect_eq(RUN_XDP(TWO_VALUES(), STACK(1, -8), STACK(2, -24), CALL_SUB(4), LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_DW, 0, 1, 0),
			     STORE_IMM(BPF_DW, 1, 0, 7), EXIT(), /* sub: */ STORE(BPF_DW, 1, 2, 0), MOV_IMM(0, 0), EXIT()), 6u);
	/* What is stored through it goes there as well. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), STACK(1, -8), STACK(2, -24), CALL_SUB(4), LOAD(BPF_DW, 1, 10, -8), STORE_IMM(BPF_DW, 1, 0, 7),
			     LOAD(BPF_DW, 0, 10, -24), EXIT(), /* sub: */ STORE(BPF_DW, 1, 2, 0), MOV_IMM(0, 0), EXIT()), 7u);
	/* Two levels down. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), STACK(1, -12), STACK(2, -24), CALL_SUB(3), LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_DW, 0, 1, 0), EXIT(),
			     /* one: */ ALU64_IMM(BPF_ADD, 1, 4), CALL_SUB(1), EXIT(), /* two: */ STORE(BPF_DW, 1, 2, 0), MOV_IMM(0, 0), EXIT()), 6u);
}

Test(bpf_stack, an_address_is_replaced_through_another_address_in_memory)
{
	/* -32 holds the address of -8; the subprogram gets the address of -32 only. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), STACK(3, -8), STORE(BPF_DW, 10, 3, -32), STACK(1, -32), STACK(2, -24), CALL_SUB(3),
			     LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_DW, 0, 1, 0), EXIT(),
			     /* sub: */ LOAD(BPF_DW, 1, 1, 0), STORE(BPF_DW, 1, 2, 0), MOV_IMM(0, 0), EXIT()), 6u);
}

Test(bpf_stack, a_number_that_a_helper_stores_over_an_address_is_that_number)
{
	/* xdp_load_bytes(ctx, 0, fp - 8, 8): bytes 0, 1, 2... of the frame. Then 4 is added, which would be a stack address. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), MOV_IMM(2, 0), STACK(3, -8), MOV_IMM(4, 8), CALL(189), LOAD(BPF_DW, 0, 10, -8),
			     ALU64_IMM(BPF_ADD, 0, 4), EXIT()), 0x03020104u);
	/* Behind the first eight bytes. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), MOV_IMM(2, 0), STACK(3, -24), MOV_IMM(4, 24), CALL(189), LOAD(BPF_DW, 0, 10, -8),
			     ALU64_IMM(BPF_ADD, 0, 4), EXIT()), 0x13121114u);
}

Test(bpf_stack, a_context_that_a_subprogram_may_replace_is_refused_where_it_is_used)
{
	REFUSES("5", STORE(BPF_DW, 10, 1, -8), STACK(1, -8), CALL_SUB(3), LOAD(BPF_DW, 1, 10, -8), LOAD(BPF_W, 0, 1, 16), EXIT(),
		/* sub: */ MOV_REG(6, 1), CALL(1), STORE(BPF_DW, 6, 0, 0), MOV_IMM(0, 0), EXIT());
	/* The subprogram itself sees it. */
	REFUSES("4", STORE(BPF_DW, 10, 1, -8), STACK(1, -8), CALL_SUB(1), EXIT(),
		/* sub: */ MOV_REG(6, 1), CALL(1), STORE(BPF_DW, 6, 0, 0), LOAD(BPF_DW, 1, 6, 0), LOAD(BPF_W, 0, 1, 16), EXIT());
}

Test(bpf_stack, a_context_beside_what_a_subprogram_stores_is_still_the_context)
{
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), STACK(1, -16), STACK(2, -24), CALL_SUB(3), LOAD(BPF_DW, 1, 10, -16), LOAD(BPF_W, 0, 1, 16),
			     EXIT(), /* sub: */ STORE(BPF_DW, 1, 2, 8), STORE_IMM(BPF_B, 2, 3, 1), MOV_IMM(0, 0), EXIT()), 22u);
	/* Bytes at an index that nobody knows here: the kernel knows that they are in the buffer. */
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), LOAD(BPF_W, 2, 1, 12), STACK(1, -80), CALL_SUB(3), LOAD(BPF_DW, 1, 10, -16),
			     LOAD(BPF_W, 0, 1, 16), EXIT(), /* sub: */ ALU64_REG(BPF_ADD, 1, 2), STORE_IMM(BPF_B, 1, 0, 1), MOV_IMM(0, 0), EXIT()), 22u);
}

Test(bpf_stack, an_address_beside_the_context_leads_a_subprogram_to_one_place_only)
{
	/* -16: the context; -8: the address of -24, where the subprogram adds 3 to 4. */
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), STACK(2, -24), STORE(BPF_DW, 10, 2, -8), STORE_IMM(BPF_DW, 10, -24, 4), STACK(1, -16),
			     CALL_SUB(5), LOAD(BPF_DW, 1, 10, -16), LOAD(BPF_W, 0, 1, 16), LOAD(BPF_DW, 1, 10, -24), ALU64_REG(BPF_ADD, 0, 1), EXIT(),
			     /* sub: */ LOAD(BPF_DW, 2, 1, 8), LOAD(BPF_DW, 3, 2, 0), ALU64_IMM(BPF_ADD, 3, 3), STORE(BPF_DW, 2, 3, 0),
			     LOAD(BPF_DW, 1, 1, 0), LOAD(BPF_W, 0, 1, 12), EXIT()), 22u + 7);
}

Test(bpf_stack, a_number_read_at_an_unknown_place_beside_the_context_may_be_stored_by_a_subprogram)
{
	/* -16: the context, not used again; sub(fp - 40, 11) adds 1 to the 8 bytes at r1 + r2 - 11. */
	cr_expect_eq(RUN_XDP(STORE(BPF_DW, 10, 1, -16), LOAD(BPF_W, 2, 1, 12), STORE_IMM(BPF_DW, 10, -40, 8), STACK(1, -40), CALL_SUB(2),
			     LOAD(BPF_DW, 0, 10, -40), EXIT(), /* sub: */ MOV_REG(3, 1), ALU64_REG(BPF_ADD, 3, 2), LOAD(BPF_DW, 4, 3, -11),
			     ALU64_IMM(BPF_ADD, 4, 1), STORE(BPF_DW, 1, 4, 0), MOV_IMM(0, 0), EXIT()), 9u);
	/* When it is used again, it may be something else. */
	REFUSES("7", STORE(BPF_DW, 10, 1, -16), LOAD(BPF_W, 2, 1, 12), STORE_IMM(BPF_DW, 10, -40, 8), STACK(1, -40), CALL_SUB(3),
		LOAD(BPF_DW, 1, 10, -16), LOAD(BPF_W, 0, 1, 16), EXIT(), /* sub: */ MOV_REG(3, 1), ALU64_REG(BPF_ADD, 3, 2),
		LOAD(BPF_DW, 4, 3, -11), ALU64_IMM(BPF_ADD, 4, 1), STORE(BPF_DW, 3, 4, -11), MOV_IMM(0, 0), EXIT());
}

Test(bpf_stack, a_number_that_replaced_an_address_may_be_returned)
{
	/* The subprogram stores 1000 where the address of -16 was, and returns it. */
	cr_expect_eq(RUN_XDP(TWO_VALUES(), STACK(1, -8), CALL_SUB(2), ALU64_IMM(BPF_ADD, 0, 8), EXIT(),
			     /* sub: */ STORE_IMM(BPF_DW, 1, 0, 1000), LOAD(BPF_DW, 0, 1, 0), EXIT()), 1008u);
}

Test(bpf_stack, an_address_that_a_callback_replaces_is_the_new_one)
{
	/* bpf_loop(2, callback, fp - 8, 0): the callback makes *data point to data - 16, which is 6. */
	struct bpf_insn body[] = {
		TWO_VALUES(), MOV_IMM(1, 2), LOAD_IMM64(2, 0), STACK(3, -8), MOV_IMM(4, 0), CALL(181), LOAD(BPF_DW, 1, 10, -8),
		LOAD(BPF_DW, 0, 1, 0), EXIT(),
	};
	struct bpf_insn callback[] = { MOV_REG(1, 2), ALU64_IMM(BPF_ADD, 1, -16), STORE(BPF_DW, 2, 1, 0), MOV_IMM(0, 0), EXIT() };
	struct bpf_ref refs[] = { { .insn = 6, .kind = BPF_REF_FUNC, .index = 1 } };
	struct bpf_func funcs[] = {
		{ .name = "main", .is_program = true, .context = SHUNT_BPF_CONTEXT_XDP, .insns = body, .nr_insns = NR(body), .refs = refs, .nr_refs = 1 },
		{ .name = "callback", .insns = callback, .nr_insns = NR(callback) },
	};
	struct bpf_unit unit = { .name = "test", .funcs = funcs, .nr_funcs = 2 };
	struct bpf_run_unit run = bpf_run_unit(&unit);

	cr_expect_eq(call_xdp((const void *)(uintptr_t)shunt_jit_lookup(run.module, "main")), 6u);
	shunt_jit_remove(run.module);
}
