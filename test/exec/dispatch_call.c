/* SPDX-License-Identifier: MIT */
/* Signatures that are known at run time only: functions of the host become programs, and are called with every kind and number of argument. */
#include <criterion/criterion.h>
#include <errno.h>
#include <shunt/call.h>
#include <shunt/log.h>
#include <shunt/reader.h>

#define TYPES_MAX SHUNT_SIGNATURE_ARGS_MAX

union value {
	uint8_t u8;
	int8_t s8;
	uint16_t u16;
	int16_t s16;
	uint32_t u32;
	int32_t s32;
	uint64_t u64;
	int64_t s64;
	float f32;
	double f64;
	void *pointer;
};

static struct shunt_dispatcher *dispatcher;

static double as_number(int32_t type, const void *at)
{
	const union value *v = at;

	switch (type) {
	case SHUNT_TYPE_U8: return v->u8;
	case SHUNT_TYPE_S8: return v->s8;
	case SHUNT_TYPE_U16: return v->u16;
	case SHUNT_TYPE_S16: return v->s16;
	case SHUNT_TYPE_U32: return v->u32;
	case SHUNT_TYPE_S32: return v->s32;
	case SHUNT_TYPE_U64: return (double)v->u64;
	case SHUNT_TYPE_S64: return (double)v->s64;
	case SHUNT_TYPE_F32: return (double)v->f32;
	case SHUNT_TYPE_F64: return v->f64;
	case SHUNT_TYPE_POINTER: return (double)(uintptr_t)v->pointer;
	default: return 0;
	}
}

static void put_number(int32_t type, union value *to, double number)
{
	switch (type) {
	case SHUNT_TYPE_U8: to->u8 = (uint8_t)number; break;
	case SHUNT_TYPE_S8: to->s8 = (int8_t)number; break;
	case SHUNT_TYPE_U16: to->u16 = (uint16_t)number; break;
	case SHUNT_TYPE_S16: to->s16 = (int16_t)number; break;
	case SHUNT_TYPE_U32: to->u32 = (uint32_t)number; break;
	case SHUNT_TYPE_S32: to->s32 = (int32_t)number; break;
	case SHUNT_TYPE_U64: to->u64 = (uint64_t)number; break;
	case SHUNT_TYPE_S64: to->s64 = (int64_t)number; break;
	case SHUNT_TYPE_F32: to->f32 = (float)number; break;
	case SHUNT_TYPE_F64: to->f64 = number; break;
	case SHUNT_TYPE_POINTER: to->pointer = (void *)(uintptr_t)number; break;
	default: break;
	}
}

struct program {
	struct shunt_signature signature;
	struct shunt_callback *callback;
	double seen; /* by the last call */
};

/* Each argument counts differently, so that two that changed places are noticed; the result is one less than what was seen. */
static void weigh(void *user, void *result, const void *const *args)
{
	struct program *program = user;

	program->seen = 0;
	for (uint32_t i = 0; i < program->signature.nr_args; i++)
		program->seen += (i + 1) * as_number(program->signature.args[i], args[i]);
	if (program->signature.ret != SHUNT_TYPE_VOID)
		put_number(program->signature.ret, result, program->seen - 1);
}

static void check(struct program *program)
{
	const struct shunt_signature *signature = &program->signature;
	union value values[TYPES_MAX] = { 0 }, result;
	const void *args[TYPES_MAX];
	double sum = 0;

	for (uint32_t i = 0; i < signature->nr_args; i++) {
		bool is_signed = signature->args[i] == SHUNT_TYPE_S8 || signature->args[i] == SHUNT_TYPE_S16 || signature->args[i] == SHUNT_TYPE_S32 ||
				 signature->args[i] == SHUNT_TYPE_S64 || signature->args[i] >= SHUNT_TYPE_F32;
		double number = is_signed && signature->args[i] != SHUNT_TYPE_POINTER && i % 2 ? -(double)(i + 1) : i + 3;

		put_number(signature->args[i], &values[i], number);
		args[i] = &values[i];
		sum += (i + 1) * number;
	}
	memset(&result, 0x5a, sizeof(result));
	program->seen = -12345;
	shunt_read_begin();
	cr_assert_eq(shunt_call(dispatcher, shunt_callback_program(program->callback), signature, args, &result), 0, "%s", shunt_error());
	shunt_read_end();
	cr_expect_eq(program->seen, sum, "the function saw %g, should be %g", program->seen, sum);
	if (signature->ret != SHUNT_TYPE_VOID)
		cr_expect_eq(as_number(signature->ret, &result), sum - 1, "the result is %g, should be %g", as_number(signature->ret, &result), sum - 1);
}

static struct program programs[] = {
	{ .signature = { SHUNT_TYPE_VOID, 0, { 0 } } },
	{ .signature = { SHUNT_TYPE_S8, 1, { SHUNT_TYPE_S8 } } },
	{ .signature = { SHUNT_TYPE_S16, 2, { SHUNT_TYPE_U8, SHUNT_TYPE_S16 } } },
	{ .signature = { SHUNT_TYPE_U32, 3, { SHUNT_TYPE_U16, SHUNT_TYPE_U32, SHUNT_TYPE_POINTER } } },
	{ .signature = { SHUNT_TYPE_S32, 4, { SHUNT_TYPE_S32, SHUNT_TYPE_S32, SHUNT_TYPE_S64, SHUNT_TYPE_S8 } } },
	{ .signature = { SHUNT_TYPE_F64, 4, { SHUNT_TYPE_F64, SHUNT_TYPE_F32, SHUNT_TYPE_U64, SHUNT_TYPE_F64 } } },
	{ .signature = { SHUNT_TYPE_F32, 12, { [0 ... 11] = SHUNT_TYPE_F32 } } }, /* more than registers for them */
	{ .signature = { SHUNT_TYPE_U64, 16, { [0 ... 15] = SHUNT_TYPE_U64 } } },
	{ .signature = { SHUNT_TYPE_S64, 16, { [0 ... 7] = SHUNT_TYPE_S8, [8 ... 15] = SHUNT_TYPE_F64 } } },
};
#define NR_PROGRAMS (sizeof(programs) / sizeof(programs[0]))

Test(dispatch_call, every_kind_and_number_of_argument_arrives_by_stub_and_by_fallback)
{
	struct shunt_callback *probe;

	cr_assert_eq(shunt_dispatcher_create("call", NULL, &dispatcher), 0, "%s", shunt_error());
	if (shunt_program_from_callback(NULL, &programs[0].signature, weigh, &programs[0], &probe) == -ENOTSUP)
		cr_skip_test("libshunt was built without libffi");
	cr_assert_eq(shunt_callback_free(probe, NULL), 0);
	for (size_t i = 0; i < NR_PROGRAMS; i++)
		cr_assert_eq(shunt_program_from_callback(NULL, &programs[i].signature, weigh, &programs[i], &programs[i].callback), 0, "%s", shunt_error());
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < NR_PROGRAMS; i++)
			check(&programs[i]);
		for (size_t i = 0; i < NR_PROGRAMS; i++) {
			const void *entry = shunt_callback_program(programs[i].callback);

			cr_assert_eq(round % 2 ? shunt_dispatcher_detach(dispatcher, entry) : shunt_dispatcher_attach(dispatcher, entry), 0, "%s", shunt_error());
		}
	}
	for (size_t i = 0; i < NR_PROGRAMS; i++) {
		uint64_t token;

		cr_assert_eq(shunt_dispatcher_detach(dispatcher, shunt_callback_program(programs[i].callback)), 0);
		cr_assert_eq(shunt_callback_free(programs[i].callback, &token), 0);
		cr_assert_eq(shunt_token_wait(token), 0);
	}
	cr_assert_eq(shunt_dispatcher_destroy(dispatcher), 0);
	cr_assert_eq(shunt_quiesce(), 0);
}
