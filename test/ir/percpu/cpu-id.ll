; The CPU number is one load from the thread pointer, at an offset that is constant (a JIT) or glibc's (ahead of time).
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 %s -o %t.x86.ll && %FileCheck %s --check-prefixes=ALL,X86 < %t.x86.ll
; RUN: %shunt-opt --passes=shunt-percpu --cpu=rseq %s | %FileCheck %s --check-prefixes=ALL,X86-RSEQ
; RUN: %shunt-opt --passes=shunt-percpu --cpu=call --remarks=- %s 2>&1 | %FileCheck %s --check-prefix=CALL
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --cpu=tp:-160 - | %FileCheck %s --check-prefixes=ALL,ARM
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --cpu=rseq - | %FileCheck %s --check-prefixes=ALL,ARM-RSEQ
; A second run finds nothing.
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --stats %t.x86.ll -o %t.again.ll 2>&1 | %FileCheck %s --check-prefix=AGAIN
; RUN: grep -v ModuleID %t.x86.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; AGAIN: cpu_ids 0
; AGAIN: missed 1
target triple = "x86_64-unknown-linux-gnu"

declare i32 @shunt_cpu_id()
declare i32 @__gxx_personality_v0(...)

; X86-RSEQ: @__rseq_offset = external constant i64
; ARM-RSEQ: @__rseq_offset = external constant i64

; ALL-LABEL: define i32 @plain(
; X86-NEXT: %cpu = load i32, ptr addrspace(257) inttoptr (i64 -160 to ptr addrspace(257)), align 4
; X86-NEXT: ret i32 %cpu
; X86-RSEQ-NEXT: %rseq = load i64, ptr @__rseq_offset
; X86-RSEQ-NEXT: [[OFF:%.*]] = add i64 %rseq, 4
; X86-RSEQ-NEXT: [[PTR:%.*]] = inttoptr i64 [[OFF]] to ptr addrspace(257)
; X86-RSEQ-NEXT: %cpu = load i32, ptr addrspace(257) [[PTR]], align 4
; ARM-NEXT: %thread = call ptr @llvm.thread.pointer()
; ARM-NEXT: [[PTR:%.*]] = getelementptr i8, ptr %thread, i64 -160
; ARM-NEXT: %cpu = load i32, ptr [[PTR]], align 4
; ARM-RSEQ-NEXT: %rseq = load i64, ptr @__rseq_offset
; ARM-RSEQ-NEXT: [[OFF:%.*]] = add i64 %rseq, 4
; ARM-RSEQ-NEXT: %thread = call ptr @llvm.thread.pointer()
; ARM-RSEQ-NEXT: [[PTR:%.*]] = getelementptr i8, ptr %thread, i64 [[OFF]]
; ARM-RSEQ-NEXT: %cpu = load i32, ptr [[PTR]], align 4
; CALL: --- !Missed
; CALL-NEXT: Pass: shunt-percpu
; CALL-NEXT: Name: NoCpuSource
; CALL: define i32 @plain(
; CALL-NEXT: %cpu = call i32 @shunt_cpu_id()
define i32 @plain() {
  %cpu = call i32 @shunt_cpu_id()
  ret i32 %cpu
}

; The number is unsigned: a wider result is zero-extended.
; ALL-LABEL: define i64 @wide(
; ALL: load i32
; ALL-NEXT: zext i32 {{.*}} to i64
define i64 @wide() {
  %cpu = call i64 @shunt_cpu_id()
  ret i64 %cpu
}

; optnone functions are not skipped.
; ALL-LABEL: define i32 @optnone(
; ALL-NOT: call i32 @shunt_cpu_id
; ALL: ret i32
define i32 @optnone() noinline optnone {
  %cpu = call i32 @shunt_cpu_id()
  ret i32 %cpu
}

; The load stands where the call stood, for the debugger too, and is not marked invariant: the thread may move.
; ALL-LABEL: define i32 @located(
; ALL: load i32, {{.*}}align 4, !dbg ![[LOC:[0-9]+]]
; ALL-NOT: invariant.load
define i32 @located() !dbg !5 {
  %cpu = call i32 @shunt_cpu_id(), !dbg !6
  ret i32 %cpu, !dbg !6
}

; An unwind edge cannot be dropped without changing the caller's blocks.
; ALL-LABEL: define i32 @invoked(
; ALL: invoke i32 @shunt_cpu_id()
define i32 @invoked() personality ptr @__gxx_personality_v0 {
  %cpu = invoke i32 @shunt_cpu_id() to label %ok unwind label %bad
ok:
  ret i32 %cpu
bad:
  %pad = landingpad { ptr, i32 } cleanup
  ret i32 0
}

; ALL: ![[LOC]] = !DILocation(line: 7
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "prog.c", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !4)
!4 = !{}
!5 = distinct !DISubprogram(name: "located", file: !1, line: 6, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DILocation(line: 7, column: 9, scope: !5)
