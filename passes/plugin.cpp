// SPDX-License-Identifier: MIT
//
// The passes as a plugin for opt and clang (-load-pass-plugin, -fpass-plugin). No policy here: names, hand-over to the C passes with
// default options (CPU number by way of glibc's __rseq_offset, no maps), and remarks by LLVM's own emitter, so that -Rpass=shunt and
// -fsave-optimization-record see them.
#include <cstdlib>
#include <string>
#include <utility>

#include <llvm/Analysis/OptimizationRemarkEmitter.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>

#include "passes/pass.h"

namespace {

/* The place that a remark names, in the scope of the function that it is in. */
llvm::DiagnosticLocation locate(const llvm::Function &function, const shunt_remark &remark)
{
	llvm::DISubprogram *subprogram = function.getSubprogram();

	if (!subprogram || !remark.file)
		return {};
	llvm::LLVMContext &context = function.getContext();
	auto *file = llvm::DIFile::get(context, remark.file, "");
	auto *scope = llvm::DILexicalBlockFile::get(context, subprogram, file, 0);
	return llvm::DebugLoc(llvm::DILocation::get(context, remark.line, remark.column, scope));
}

template <typename Remark>
void emit(llvm::OptimizationRemarkEmitter &emitter, const llvm::Function &function, const shunt_remark &remark)
{
	Remark out(remark.pass, remark.name, locate(function, remark), &function.getEntryBlock());

	out << llvm::ore::NV("Callee", remark.callee) << ": " << llvm::ore::NV("Reason", remark.message);
	emitter.emit(out);
}

void forward(void *user, const shunt_remark *remark)
{
	const llvm::Function *function = static_cast<llvm::Module *>(user)->getFunction(remark->function);

	if (!function || function->isDeclaration())
		return;
	llvm::OptimizationRemarkEmitter emitter(function);
	if (remark->kind == SHUNT_REMARK_PASSED)
		emit<llvm::OptimizationRemark>(emitter, *function, *remark);
	else
		emit<llvm::OptimizationRemarkMissed>(emitter, *function, *remark);
}

struct ShuntPass : llvm::PassInfoMixin<ShuntPass> {
	std::string pipeline;
	bool asked_for; /* by name: then a machine that we do not know is an error, not a reason to stand aside */

	ShuntPass(std::string pipeline, bool asked_for) : pipeline(std::move(pipeline)), asked_for(asked_for) {}

	llvm::PreservedAnalyses run(llvm::Module &module, llvm::ModuleAnalysisManager &)
	{
		shunt_pass_options options = {};
		char *error = nullptr;
		bool changed = false;

		options.cpu = SHUNT_PASS_CPU_RSEQ_AOT;
		options.remark = forward;
		options.remark_user = &module;
		if (shunt_passes_run_changed(llvm::wrap(&module), pipeline.c_str(), &options, nullptr, &changed, &error) && asked_for)
			module.getContext().emitError(error ? error : "shunt: out of memory");
		std::free(error);
		return changed ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
	}

	static bool isRequired() { return true; } /* at -O0 and in optnone functions, too */
};

/* A name with or without <parameters>, which the C side reads when it runs. */
bool add_by_name(llvm::StringRef name, llvm::ModulePassManager &passes, llvm::ArrayRef<llvm::PassBuilder::PipelineElement>)
{
	for (const char *known : { "shunt", "shunt-mark", "shunt-bpf-helpers", "shunt-percpu", "shunt-targets", "shunt-dispatch", "shunt-pairs" }) {
		if (name == known || name.starts_with((llvm::Twine(known) + "<").str())) {
			passes.addPass(ShuntPass(name.str(), true));
			return true;
		}
	}
	return false;
}

/* Marks before anything is moved. What branches or opens further simplification early; dispatch late, since a stub call would hide a
 * devirtualisation, after a second look for the marks of functions that were inlined meanwhile. */
void register_callbacks(llvm::PassBuilder &builder)
{
	builder.registerPipelineParsingCallback(add_by_name);
	builder.registerPipelineStartEPCallback([](llvm::ModulePassManager &passes, llvm::OptimizationLevel) {
		passes.addPass(ShuntPass("shunt-mark", false));
	});
	builder.registerPipelineEarlySimplificationEPCallback([](llvm::ModulePassManager &passes, llvm::OptimizationLevel) {
		passes.addPass(ShuntPass("shunt-bpf-helpers,shunt-percpu,shunt-targets", false));
	});
	builder.registerOptimizerEarlyEPCallback([](llvm::ModulePassManager &passes, llvm::OptimizationLevel) {
		passes.addPass(ShuntPass("shunt-mark,shunt-targets,shunt-dispatch", false));
	});
	builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager &passes, llvm::OptimizationLevel) {
		passes.addPass(ShuntPass("shunt-pairs", false));
	});
}

} // namespace

extern "C" SHUNT_API llvm::PassPluginLibraryInfo llvmGetPassPluginInfo()
{
	return { LLVM_PLUGIN_API_VERSION, "shunt", LLVM_VERSION_STRING, register_callbacks };
}
