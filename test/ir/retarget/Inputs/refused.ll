target datalayout = "e-m:e-p:64:64-i64:64-i128:128-n32:64-S128"
target triple = "bpf"
;MODULE module asm "r0 = 1"
@"llvm.task_struct:0:16$0:3" = external global i64
declare ptr @llvm.preserve.struct.access.index.p0.p0(ptr, i32, i32)
declare i64 @llvm.bpf.load.byte(ptr, i64)
define i64 @prog(ptr %ctx) {
;ASM  call void asm sideeffect "r0 = 7", "~{r0}"()
;CORE  %o = load i64, ptr @"llvm.task_struct:0:16$0:3"
;PRESERVE  %q = call ptr @llvm.preserve.struct.access.index.p0.p0(ptr elementtype({ i32, i32 }) %ctx, i32 1, i32 1)
;LOAD  %b = call i64 @llvm.bpf.load.byte(ptr %ctx, i64 4)
  ret i64 0
}
