/* SPDX-License-Identifier: MIT */
/* A BPF front end: two instructions, compiled and called. */
#include <linux/bpf.h>
#include <stdio.h>
#include <shunt/bpf.h>
#include <shunt/log.h>
#include <shunt/reader.h>

int main(void)
{
	const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 42 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct shunt_bpf_object *object;
	uint64_t (*entry)(void *, size_t);
	uint64_t got;

	if (shunt_bpf_open_insns(insns, 2, SHUNT_BPF_CONTEXT_NONE, NULL, &object) || shunt_bpf_compile(object)) {
		fprintf(stderr, "%s\n", shunt_error());
		return 1;
	}
	entry = (uint64_t (*)(void *, size_t))shunt_bpf_program_entry(shunt_bpf_next_program(object, NULL));
	shunt_read_begin();
	got = entry(NULL, 0);
	shunt_read_end();
	shunt_bpf_close(object);
	shunt_quiesce();
	printf("the program returned %llu\n", (unsigned long long)got);
	return got == 42 ? 0 : 1;
}
