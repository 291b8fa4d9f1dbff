; Down to machine code: the pointer is in r10 or x18 and the stub is called or jumped to by name, with and without optimisation, in PIC.
; RUN: %shunt-opt --passes=shunt-dispatch %s -o %t.x86.ll
; RUN: %llvm/llc -O2 -relocation-model=pic < %t.x86.ll | %FileCheck %s --check-prefix=X86
; RUN: %llvm/llc -O0 -relocation-model=pic < %t.x86.ll | %FileCheck %s --check-prefix=X86-O0
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-dispatch - -o %t.arm.ll
; RUN: %llvm/llc -O2 -relocation-model=pic < %t.arm.ll | %FileCheck %s --check-prefix=ARM
; RUN: %llvm/llc -O0 -relocation-model=pic < %t.arm.ll | %FileCheck %s --check-prefix=ARM-O0
; LLVM's optimiser leaves the arguments of a stub alone, whatever prototype the first call had.
; RUN: %shunt-opt --passes=shunt-dispatch --llvm-after='default<O2>' %s | %FileCheck %s --check-prefix=O2
target triple = "x86_64-unknown-linux-gnu"

; X86-LABEL: jumps:
; X86: movq %rsi, %r10
; X86: jmp shunt_stub.xdp # TAILCALL
; X86-O0-LABEL: jumps:
; X86-O0: r10
; X86-O0: {{jmp|callq}} shunt_stub.xdp
; X86-O0-NOT: @PLT
; ARM-LABEL: jumps:
; ARM: mov x18, x1
; ARM: b shunt_stub.xdp
; ARM-O0-LABEL: jumps:
; ARM-O0: x18
; ARM-O0: b{{l?}} shunt_stub.xdp
define i32 @jumps(ptr %ctx, ptr %prog) {
  %r = tail call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

; X86-LABEL: calls:
; X86: movq %rdx, %r10
; X86: callq shunt_stub.xdp
; ARM-LABEL: calls:
; ARM: mov x18, x2
; ARM: bl shunt_stub.xdp
; O2-LABEL: define i64 @calls(
; O2: call i64 @shunt_stub.xdp(ptr %ctx, i64 %n, ptr nest %prog)
define i64 @calls(ptr %ctx, i64 %n, ptr %prog) {
  %r = call i64 %prog(ptr %ctx, i64 %n), !shunt.dispatch !0
  %s = add i64 %r, 1
  ret i64 %s
}

; Twelve integer arguments use no register of ours.
; X86-LABEL: many:
; X86-DAG: r10
; X86: callq shunt_stub.many
; ARM-LABEL: many:
; ARM: mov x18, x0
; ARM: bl shunt_stub.many
define void @many(ptr %prog) {
  call void %prog(i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i64 9, i64 10, i64 11, i64 12), !shunt.dispatch !1
  ret void
}

!0 = !{!"xdp"}
!1 = !{!"many"}
