/* SPDX-License-Identifier: MIT */
/*
 * From a module to an object: our passes, LLVM's optimisation, code generation, in the caller's thread and the module's own context. An error
 * diagnostic fails the compile whatever LLVM returned: it emits an object after an error in inline assembly, too.
 */
#include "lib/jit/jit_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <shunt/percpu.h>
#include "runtime/log.h"

static void take_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
	struct jit_diagnostics *diagnostics = user;
	char *text;

	if (LLVMGetDiagInfoSeverity(info) != LLVMDSError)
		return;
	if (!diagnostics->nr_errors++) {
		text = LLVMGetDiagInfoDescription(info);
		snprintf(diagnostics->first, sizeof(diagnostics->first), "%s", text);
		LLVMDisposeMessage(text);
	}
}

static int run_pipeline(LLVMModuleRef module, const char *pipeline, const struct shunt_pass_options *passes, struct shunt_pass_counts *counts)
{
	char *error = NULL;
	int err = shunt_passes_run(module, pipeline, passes, counts, &error);

	if (err)
		err = shunt_fail(-err, "running passes '%s': %s", pipeline, error ? error : "no reason given");
	free(error);
	return err;
}

static int run_passes(const struct shunt_jit *jit, LLVMModuleRef module, const struct shunt_jit_module_options *options, struct shunt_pass_counts *counts)
{
	struct shunt_pass_options passes = { 0 };
	const char *pipeline = options && options->pipeline ? options->pipeline : "shunt";

	if (!*pipeline)
		return 0;
	if (options && options->passes)
		passes = *options->passes;
	if (passes.cpu == SHUNT_PASS_CPU_CALL && !jit->elsewhere) {
		struct shunt_cpu_index index;

		shunt_cpu_index(&index);
		if (index.source != SHUNT_CPU_GETCPU) {
			passes.cpu = index.source == SHUNT_CPU_RSEQ ? SHUNT_PASS_CPU_RSEQ : SHUNT_PASS_CPU_TP;
			passes.cpu_offset = index.tp_offset;
		}
	}
	if (!passes.nr_cpus && !jit->elsewhere)
		passes.nr_cpus = shunt_nr_cpus();
	return run_pipeline(module, pipeline, &passes, counts);
}

/* Exact updates that LLVM's passes have brought together. */
static int run_last_passes(LLVMModuleRef module, const struct shunt_jit_module_options *options, struct shunt_pass_counts *counts)
{
	if (!counts->exact_updates)
		return 0;
	return run_pipeline(module, "shunt-pairs", options ? options->passes : NULL, counts);
}

static int optimise(const struct shunt_jit *jit, LLVMModuleRef module, LLVMTargetMachineRef machine)
{
	LLVMPassBuilderOptionsRef options;
	LLVMErrorRef error;
	char pipeline[32];

	if (!jit->opt_level)
		return 0;
	snprintf(pipeline, sizeof(pipeline), "default<O%u>", jit->opt_level);
	options = LLVMCreatePassBuilderOptions();
	error = LLVMRunPasses(module, pipeline, machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (error) {
		char *message = LLVMGetErrorMessage(error);
		int err = shunt_fail(EINVAL, "LLVM cannot run '%s': %s", pipeline, message);

		LLVMDisposeErrorMessage(message);
		return err;
	}
	return 0;
}

static int emit(LLVMModuleRef module, LLVMTargetMachineRef machine, LLVMMemoryBufferRef *object)
{
	char *message = NULL;

	if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, object)) {
		int err = shunt_fail(EINVAL, "code generation failed: %s", message);

		LLVMDisposeMessage(message);
		return err;
	}
	return 0;
}

static int verify(LLVMModuleRef module)
{
	char *message = NULL;
	int err = 0;

	if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
		err = shunt_fail(EINVAL, "the module is not valid IR after the passes: %s", message);
	LLVMDisposeMessage(message);
	return err;
}

static int compile(const struct shunt_jit *jit, LLVMModuleRef module, LLVMTargetMachineRef machine,
		   const struct shunt_jit_module_options *options, struct shunt_jit_module *out, LLVMMemoryBufferRef *object)
{
	int err = jit_prepare(jit, machine, module);

	if (!err)
		err = run_passes(jit, module, options, &out->counts);
	if (!err)
		err = verify(module);
	if (!err)
		err = optimise(jit, module, machine);
	if (!err)
		err = run_last_passes(module, options, &out->counts);
	if (!err && jit->keep_ir)
		out->ir = LLVMPrintModuleToString(module);
	return err ? err : emit(module, machine, object);
}

int jit_compile(const struct shunt_jit *jit, LLVMContextRef context, LLVMModuleRef module, const struct shunt_jit_module_options *options,
		struct shunt_jit_module *out, LLVMMemoryBufferRef *object)
{
	struct jit_diagnostics diagnostics = { 0 };
	LLVMTargetMachineRef machine = jit_target_machine(jit);
	int err;

	*object = NULL;
	if (!machine)
		return shunt_fail(ENOTSUP, "LLVM has no code generator for '%s'", jit->triple);
	LLVMContextSetDiagnosticHandler(context, take_diagnostic, &diagnostics);
	err = compile(jit, module, machine, options, out, object);
	LLVMContextSetDiagnosticHandler(context, NULL, NULL);
	LLVMDisposeTargetMachine(machine);
	if (!err && diagnostics.nr_errors) {
		err = shunt_fail(EINVAL, "the module does not compile: %s", diagnostics.first);
		LLVMDisposeMemoryBuffer(*object);
		*object = NULL;
	}
	return err;
}
