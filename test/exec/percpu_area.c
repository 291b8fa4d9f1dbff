/* SPDX-License-Identifier: MIT */
/* Restartable sequences in generated code, on an area that is not the kernel's: which copy they change, and what they leave behind. */
#include "jit_test.h"

#include <shunt/percpu.h>

static _Thread_local struct {
	uint32_t cpu_id_start;
	int32_t cpu_id;
	uint64_t rseq_cs;
} area __attribute__((aligned(32), tls_model("initial-exec")));

static const char text[] =
	"declare void @shunt_percpu_add64(ptr, i64)\ndeclare void @shunt_percpu_add32(ptr, i32)\n"
	"declare void @shunt_percpu_add16(ptr, i16)\ndeclare void @shunt_percpu_add8(ptr, i8)\n"
	"declare ptr @shunt_percpu_this(ptr)\n"
	"define void @add_all(ptr %p, i64 %v) {\n"
	"  %p1 = getelementptr i8, ptr %p, i64 8\n  %p2 = getelementptr i8, ptr %p, i64 12\n  %p3 = getelementptr i8, ptr %p, i64 14\n"
	"  %w = trunc i64 %v to i32\n  %h = trunc i64 %v to i16\n  %b = trunc i64 %v to i8\n"
	"  call void @shunt_percpu_add64(ptr %p, i64 %v)\n  call void @shunt_percpu_add32(ptr %p1, i32 %w)\n"
	"  call void @shunt_percpu_add16(ptr %p2, i16 %h)\n  call void @shunt_percpu_add8(ptr %p3, i8 %b)\n"
	"  ret void\n}\n"
	"define void @change(ptr %p, i64 %v) {\n"
	"  %mine = call ptr @shunt_percpu_this(ptr %p)\n  %m1 = getelementptr i64, ptr %mine, i64 1\n  %m2 = getelementptr i64, ptr %mine, i64 2\n"
	"  %a = load i64, ptr %mine, align 8\n  %a1 = or i64 %a, %v\n  store i64 %a1, ptr %mine, align 8\n"
	"  %b = load i64, ptr %m1, align 8\n  %b1 = xor i64 %b, %v\n  store i64 %b1, ptr %m1, align 8\n"
	"  %c = load i64, ptr %m2, align 8\n  %c1 = and i64 %c, 4080\n  store i64 %c1, ptr %m2, align 8\n"
	"  ret void\n}\n";

static const uint64_t *words_of(void *p, int64_t unit)
{
	return (const uint64_t *)((char *)p + unit * (INT64_C(1) << SHUNT_PERCPU_SHIFT));
}

static void *entry(struct shunt_jit_module *module, const char *name)
{
	void *address = shunt_jit_lookup(module, name);

	cr_assert_not_null(address, "%s", shunt_error());
	return address;
}

Test(percpu_area, generated_sequences_change_the_copy_that_the_area_names_and_leave_no_descriptor)
{
	struct shunt_pass_options passes = {
		.cpu = SHUNT_PASS_CPU_RSEQ,
		.cpu_offset = (char *)&area.cpu_id - (char *)__builtin_thread_pointer(),
		.rmw = SHUNT_PASS_RMW_EXACT,
	};
	struct shunt_jit_module_options options = { .passes = &passes };
	struct shunt_jit *jit = jit_test_create();
	struct shunt_jit_module *module = NULL;
	void (*add_all)(void *, uint64_t), (*change)(void *, uint64_t);
	void *p, *q;

	cr_assert_eq(jit_test_add(jit, text, &options, &module), 0, "%s", shunt_error());
	cr_assert_eq(shunt_jit_module_counts(module)->exact_updates, 7);
	add_all = (void (*)(void *, uint64_t))(uintptr_t)entry(module, "add_all");
	change = (void (*)(void *, uint64_t))(uintptr_t)entry(module, "change");
	for (int32_t cpu = -2; cpu < (int32_t)shunt_nr_cpus(); cpu++) {
		cr_assert_eq(shunt_percpu_alloc(64, 0, &p), 0);
		cr_assert_eq(shunt_percpu_alloc(64, 0, &q), 0);
		area.cpu_id = cpu;
		for (int64_t unit = -2; unit < (int64_t)shunt_nr_cpus(); unit++)
			((uint64_t *)(uintptr_t)words_of(q, unit))[2] = UINT64_MAX;
		for (int i = 0; i < 1000; i++) {
			add_all(p, 0x100000003);
			cr_assert_eq(area.rseq_cs, 0);
		}
		change(q, 0x123);
		change(q, 0x456);
		cr_assert_eq(area.rseq_cs, 0);
		for (int64_t unit = -2; unit < (int64_t)shunt_nr_cpus(); unit++) {
			const uint64_t *a = words_of(p, unit), *c = words_of(q, unit);
			bool is_it = unit == (cpu < 0 ? -1 : cpu);

			cr_assert_eq(a[0], is_it ? UINT64_C(3000) + (UINT64_C(1000) << 32) : 0, "CPU %d, unit %d", (int)cpu, (int)unit);
			/* 3000 in 32, 16 and 8 bits. */
			cr_assert_eq(a[1], is_it ? 0xb80bb800000bb8 : 0);
			cr_assert_eq(c[0], is_it ? 0x577 : 0);
			cr_assert_eq(c[1], is_it ? 0x575 : 0);
			cr_assert_eq(c[2], is_it ? 0xff0 : UINT64_MAX);
		}
		shunt_percpu_free(p);
		shunt_percpu_free(q);
	}
	shunt_jit_remove(module);
	shunt_jit_destroy(jit);
}
