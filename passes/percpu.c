/* SPDX-License-Identifier: MIT */
/*
 * shunt-percpu: the CPU number, per-CPU variables and map lookups without a function call.
 *
 * Changes calls (not invokes) of shunt_cpu_id, shunt_percpu_this, _of and _add*, shunt_map_lookup and shunt_map_lookup_of.
 * Everything is straight-line code with select, so that the caller's blocks, attributes and loops stay as they are. Leaves alone
 * what it cannot prove, with a remark.
 */
#include <string.h>
#include "passes/percpu.h"
#include "passes/rmw.h"

/*
 * The thread pointer plus a constant. x86-64 has it as the base of FS, which is address space 257 to LLVM; arm64 reads a register.
 *
 * The load is an ordinary one: two reads in one run of a program may become one, which programs written for the kernel even expect
 * (nothing migrates them there). It is not !invariant.load, since the number changes when the thread moves: a store or an opaque
 * call between two reads separates them, so a loop around program calls reads it anew.
 */
static LLVMValueRef load_thread(struct shunt_pass *pass, LLVMValueRef offset)
{
	LLVMValueRef pointer, load;

	if (pass->arm64) {
		unsigned id = LLVMLookupIntrinsicID("llvm.thread.pointer", strlen("llvm.thread.pointer"));
		LLVMValueRef intrinsic = LLVMGetIntrinsicDeclaration(pass->module, id, NULL, 0);
		LLVMValueRef base = LLVMBuildCall2(pass->builder, LLVMGlobalGetValueType(intrinsic), intrinsic, NULL, 0, "thread");

		pointer = LLVMBuildGEP2(pass->builder, pass->i8, base, &offset, 1, "");
	} else {
		pointer = LLVMBuildIntToPtr(pass->builder, offset, LLVMPointerTypeInContext(pass->context, 257), "");
	}
	load = LLVMBuildLoad2(pass->builder, pass->i32, pointer, "cpu");
	LLVMSetAlignment(load, 4);
	return load;
}

/* glibc's own symbol; constant after start-up, which lets LLVM lift the load of it out of loops. */
LLVMValueRef shunt_pass_rseq_offset(struct shunt_pass *pass)
{
	LLVMValueRef symbol = LLVMGetNamedGlobal(pass->module, "__rseq_offset");

	if (!symbol) {
		symbol = LLVMAddGlobal(pass->module, pass->i64, "__rseq_offset");
		LLVMSetGlobalConstant(symbol, 1);
	}
	return LLVMBuildLoad2(pass->builder, pass->i64, symbol, "rseq");
}

LLVMValueRef shunt_pass_cpu_id(struct shunt_pass *pass)
{
	LLVMValueRef offset;

	switch (pass->options->cpu) {
	case SHUNT_PASS_CPU_TP:
	case SHUNT_PASS_CPU_RSEQ:
		return load_thread(pass, LLVMConstInt(pass->i64, (unsigned long long)pass->options->cpu_offset, 1));
	case SHUNT_PASS_CPU_RSEQ_AOT:
		/* struct rseq: cpu_id is its second 32-bit word, linux/rseq.h */
		offset = LLVMBuildAdd(pass->builder, shunt_pass_rseq_offset(pass), LLVMConstInt(pass->i64, 4, 0), "");
		return load_thread(pass, offset);
	default:
		return NULL;
	}
}

static LLVMValueRef copy_at(struct shunt_pass *pass, LLVMValueRef p, LLVMValueRef distance)
{
	/* In bounds: all copies lie in one reservation. So LLVM knows that a copy is not null when p is not. */
	return LLVMBuildInBoundsGEP2(pass->builder, pass->i8, p, &distance, 1, "");
}

static LLVMValueRef constant(struct shunt_pass *pass, unsigned value)
{
	return LLVMConstInt(pass->i64, value, 0);
}

/*
 * Signed: the units of threads without rseq lie below CPU 0's. arm64 extends and shifts in the load and the addition. On x86-64 two shifts
 * of a plain load do both, as a CPU's number has far fewer than the 30 bits that are left of it: a load that extends the sign takes an
 * arithmetic unit too on some cores, and is slower there than all three.
 */
LLVMValueRef shunt_pass_this_copy(struct shunt_pass *pass, LLVMValueRef p)
{
	LLVMValueRef cpu = shunt_pass_cpu_id(pass), distance;

	if (pass->arm64) {
		distance = LLVMBuildShl(pass->builder, LLVMBuildSExt(pass->builder, cpu, pass->i64, ""), constant(pass, SHUNT_PERCPU_SHIFT), "");
	} else {
		distance = LLVMBuildShl(pass->builder, LLVMBuildZExt(pass->builder, cpu, pass->i64, ""), constant(pass, 32 + 2), "");
		distance = LLVMBuildAShr(pass->builder, distance, constant(pass, 32 + 2 - SHUNT_PERCPU_SHIFT), "");
		LLVMSetExact(distance, 1);
	}
	return copy_at(pass, p, distance);
}

LLVMValueRef shunt_pass_copy_of(struct shunt_pass *pass, LLVMValueRef p, LLVMValueRef cpu)
{
	LLVMValueRef cpu64 = LLVMBuildZExt(pass->builder, cpu, pass->i64, "");

	return copy_at(pass, p, LLVMBuildShl(pass->builder, cpu64, constant(pass, SHUNT_PERCPU_SHIFT), ""));
}

static LLVMValueRef declare_nr_cpus(struct shunt_pass *pass)
{
	return shunt_ir_declare(pass, "shunt_nr_cpus", LLVMFunctionType(pass->i32, NULL, 0, 0));
}

bool shunt_pass_can_count_cpus(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	if (pass->options->nr_cpus || declare_nr_cpus(pass))
		return true;
	shunt_pass_missed(pass, call, "NameTaken", callee, "call left: 'shunt_nr_cpus' is not a function in this module");
	return false;
}

static LLVMValueRef nr_cpus(struct shunt_pass *pass)
{
	LLVMValueRef function;

	if (pass->options->nr_cpus)
		return LLVMConstInt(pass->i32, pass->options->nr_cpus, 0);
	function = declare_nr_cpus(pass);
	/* memory(none): the number is constant for the life of the process */
	if (LLVMIsDeclaration(function))
		shunt_ir_add_attribute(pass, function, LLVMAttributeFunctionIndex, "memory");
	return LLVMBuildCall2(pass->builder, LLVMFunctionType(pass->i32, NULL, 0, 0), function, NULL, 0, "nr.cpus");
}

LLVMValueRef shunt_pass_is_cpu(struct shunt_pass *pass, LLVMValueRef cpu)
{
	return LLVMBuildICmp(pass->builder, LLVMIntULT, cpu, nr_cpus(pass), "");
}

static void no_cpu_source(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	shunt_pass_missed(pass, call, "NoCpuSource", callee, "call left: no source of the CPU number is known for this module");
}

static void lower_cpu_id(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	LLVMValueRef cpu;

	if (pass->options->cpu == SHUNT_PASS_CPU_CALL) {
		no_cpu_source(pass, call, callee);
		return;
	}
	cpu = shunt_pass_cpu_id(pass);
	shunt_pass_passed(pass, call, "InlinedCpuId", callee, "became one thread-local load");
	pass->counts->cpu_ids++;
	shunt_ir_replace(pass, call, cpu, false);
}

static void lower_this(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	LLVMValueRef p, unit0;

	if (pass->options->cpu == SHUNT_PASS_CPU_CALL) {
		shunt_rmw_record(pass, &(struct shunt_rmw_lookup){ .value = call, .kind = SHUNT_RMW_THIS_CPU });
		no_cpu_source(pass, call, callee);
		return;
	}
	unit0 = shunt_ir_coerce(pass, LLVMGetOperand(call, 0), pass->ptr, false);
	p = shunt_pass_this_copy(pass, unit0);
	shunt_rmw_record(pass, &(struct shunt_rmw_lookup){ .value = p, .kind = SHUNT_RMW_THIS_CPU, .unit0 = unit0, .object = unit0 });
	shunt_pass_passed(pass, call, "InlinedPercpuThis", callee, "became load, shift and add");
	pass->counts->percpu_this++;
	shunt_ir_replace(pass, call, p, false);
}

static void lower_of(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	LLVMValueRef p, cpu, is_cpu;

	if (!shunt_pass_can_count_cpus(pass, call, callee))
		return;
	p = shunt_ir_coerce(pass, LLVMGetOperand(call, 0), pass->ptr, false);
	cpu = shunt_ir_coerce(pass, LLVMGetOperand(call, 1), pass->i32, false);
	is_cpu = shunt_pass_is_cpu(pass, cpu);
	p = shunt_pass_copy_of(pass, p, cpu);
	p = LLVMBuildSelect(pass->builder, is_cpu, p, LLVMConstNull(pass->ptr), "");
	shunt_rmw_record(pass, &(struct shunt_rmw_lookup){ .value = p, .kind = SHUNT_RMW_OTHER_CPU });
	shunt_pass_passed(pass, call, "InlinedPercpuOf", callee, "became compare, shift, add and select");
	pass->counts->percpu_of++;
	shunt_ir_replace(pass, call, p, false);
}

/* Exact, whatever migrates: the update is inside the restartable sequence. */
static void lower_add(struct shunt_pass *pass, LLVMValueRef call, const char *callee, LLVMTypeRef type)
{
	LLVMValueRef p, value;

	if (!shunt_rmw_has_rseq(pass)) {
		shunt_pass_missed(pass, call, "NoRseq", callee, "call left: an exact update inline needs the thread's struct rseq");
		return;
	}
	p = shunt_ir_coerce(pass, LLVMGetOperand(call, 0), pass->ptr, false);
	value = shunt_ir_coerce(pass, LLVMGetOperand(call, 1), type, false);
	shunt_rmw_emit_rseq(pass, SHUNT_RMW_ADD, p, value);
	shunt_pass_passed(pass, call, "InlinedPercpuAdd", callee, "became a restartable sequence");
	pass->counts->exact_updates++;
	shunt_ir_replace(pass, call, NULL, false);
}

static void lower_add64(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	lower_add(pass, call, callee, pass->i64);
}

static void lower_add32(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	lower_add(pass, call, callee, pass->i32);
}

static void lower_add16(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	lower_add(pass, call, callee, LLVMInt16TypeInContext(pass->context));
}

static void lower_add8(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	lower_add(pass, call, callee, pass->i8);
}

static void lower_lookup(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	shunt_pass_lookup(pass, call, callee, false);
}

static void lower_lookup_of(struct shunt_pass *pass, LLVMValueRef call, const char *callee)
{
	shunt_pass_lookup(pass, call, callee, true);
}

static const struct form {
	const char *callee;
	unsigned nr_args;
	bool returns_pointer;
	void (*lower)(struct shunt_pass *pass, LLVMValueRef call, const char *callee);
} forms[] = {
	{ "shunt_cpu_id", 0, false, lower_cpu_id },
	{ "shunt_percpu_this", 1, true, lower_this },
	{ "shunt_percpu_of", 2, true, lower_of },
	{ "shunt_percpu_add64", 2, true, lower_add64 },
	{ "shunt_percpu_add32", 2, true, lower_add32 },
	{ "shunt_percpu_add16", 2, true, lower_add16 },
	{ "shunt_percpu_add8", 2, true, lower_add8 },
	{ "shunt_map_lookup", 2, true, lower_lookup },
	{ "shunt_map_lookup_of", 3, true, lower_lookup_of },
};

static const struct form *find_form(LLVMValueRef call)
{
	LLVMValueRef callee = LLVMGetCalledValue(call);
	const char *name;
	size_t len = 0;

	if (!LLVMIsAFunction(callee))
		return NULL;
	/* A local function of such a name is the module's own. */
	if (shunt_ir_is_local(callee))
		return NULL;
	name = LLVMGetValueName2(callee, &len);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (strlen(forms[i].callee) == len && !memcmp(forms[i].callee, name, len))
			return &forms[i];
	return NULL;
}

static bool has_expected_types(struct shunt_pass *pass, LLVMValueRef call, const struct form *form)
{
	if (LLVMGetNumArgOperands(call) < form->nr_args || LLVMGetInstructionCallConv(call) != LLVMCCallConv)
		return false;
	for (unsigned i = 0; i < form->nr_args; i++)
		if (!shunt_ir_can_coerce(LLVMTypeOf(LLVMGetOperand(call, i)), pass->ptr))
			return false;
	return shunt_ir_can_return(call, form->returns_pointer ? pass->ptr : pass->i32) && shunt_ir_can_copy(call);
}

void shunt_pass_percpu(struct shunt_pass *pass, LLVMValueRef call)
{
	const struct form *form = find_form(call);

	if (!form)
		return;
	if (!LLVMIsACallInst(call)) {
		shunt_pass_missed(pass, call, "Invoke", form->callee,
				  "call left: it is an invoke, but this function never unwinds: declare it nounwind");
		return;
	}
	if (!has_expected_types(pass, call, form)) {
		shunt_pass_missed(pass, call, "UnexpectedSignature", form->callee,
				  "call left: its arguments, result or calling convention are not those of shunt/abi.h");
		return;
	}
	shunt_ir_at(pass, call);
	form->lower(pass, call, form->callee);
}
