; The plugin gives opt and clang the same passes, and LLVM's own remarks.
; REQUIRES: plugin
; RUN: %llvm/opt -load-pass-plugin=%plugin -passes=shunt -S %s -pass-remarks=shunt -pass-remarks-missed=shunt -o %t.ll 2> %t.remarks
; RUN: %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=REMARK < %t.remarks
; RUN: %llvm/opt -load-pass-plugin=%plugin -passes='shunt-bpf-helpers,shunt-percpu,function(sroa),shunt-dispatch' -S %s | %FileCheck %s
; In LLVM's default pipelines by itself, at every level.
; RUN: %llvm/opt -load-pass-plugin=%plugin -passes='default<O2>' -S %s | %FileCheck %s
; RUN: %llvm/opt -load-pass-plugin=%plugin -passes='default<O0>' -S %s | %FileCheck %s
; RUN: %llvm/clang --target=x86_64-unknown-linux-gnu -x ir %s -fpass-plugin=%plugin -O1 -S -o - | %FileCheck %s --check-prefix=ASM
; A machine that we do not know is an error when a pass was asked for, and no business of ours otherwise.
; RUN: sed -e 's/x86_64/riscv64/' %s | not %llvm/opt -load-pass-plugin=%plugin -passes=shunt-percpu -disable-output 2>&1 | %FileCheck %s --check-prefix=MACHINE
; RUN: sed -e 's/x86_64/riscv64/' %s | %llvm/opt -load-pass-plugin=%plugin -passes='default<O1>' -disable-output
; MACHINE: error: the module's target triple 'riscv64-unknown-linux-gnu' is neither x86-64 nor arm64
target triple = "x86_64-unknown-linux-gnu"

declare i32 @shunt_cpu_id()
declare i32 @known(ptr)

; CHECK: @__rseq_offset = external
; CHECK: call i32 @shunt_stub.xdp(ptr {{(nonnull )?}}%ctx, ptr nest %prog)
; REMARK: it.c:7:9: shunt_cpu_id: became one thread-local load
; REMARK: it.c:8:3: xdp: indirect call became a direct call of 'shunt_stub.xdp'
; REMARK: it.c:9:3: xdp: call left: it is direct already
; ASM: __rseq_offset
; ASM: callq shunt_stub.xdp
define i32 @f(ptr %ctx, ptr %prog) !dbg !15 {
  %c = call i32 @shunt_cpu_id(), !dbg !16
  %r = call i32 %prog(ptr %ctx), !dbg !17, !shunt.dispatch !0
  %s = call i32 @known(ptr %ctx), !dbg !18, !shunt.dispatch !0
  %x = add i32 %c, %r
  %y = add i32 %x, %s
  ret i32 %y
}

!0 = !{!"xdp"}
!llvm.dbg.cu = !{!10}
!llvm.module.flags = !{!12}
!10 = distinct !DICompileUnit(language: DW_LANG_C11, file: !11, emissionKind: FullDebug)
!11 = !DIFile(filename: "it.c", directory: "/src")
!12 = !{i32 2, !"Debug Info Version", i32 3}
!13 = !DISubroutineType(types: !14)
!14 = !{}
!15 = distinct !DISubprogram(name: "located", file: !11, line: 6, type: !13, unit: !10, spFlags: DISPFlagDefinition)
!16 = !DILocation(line: 7, column: 9, scope: !15)
!17 = !DILocation(line: 8, column: 3, scope: !15)
!18 = !DILocation(line: 9, column: 3, scope: !15)
