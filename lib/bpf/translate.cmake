# Bytecode check, translation to LLVM IR and the helpers of BPF programs; relative to lib/bpf.
set(BPF_TRANSLATE_SOURCES check.c context.c context_step.c translate.c translate_insn.c helpers.c helpers_call.c helpers_xdp.c helpers_text.c)
