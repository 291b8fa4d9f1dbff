; Two exact updates that follow each other become one restartable sequence, whose first is an addition; what stands in the way.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' %s -o %t.ll
; RUN: %shunt-opt -p shunt-pairs %t.ll -o %t.pairs.ll
; RUN: %FileCheck %s --check-prefixes=CHECK,X86 < %t.pairs.ll
; RUN: %shunt-opt -p shunt-pairs %t.pairs.ll | grep -v ModuleID > %t.again
; RUN: grep -v ModuleID %t.pairs.ll | diff - %t.again
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>,shunt-pairs' --remarks=%t.yaml %s -o %t.both.ll
; RUN: grep -c PairedUpdates %t.yaml | grep -x 6
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq>,shunt-pairs' %s | %FileCheck %s --check-prefixes=CHECK,AOT
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt -p 'shunt-percpu<cpu=rseq:-28>,shunt-pairs' - -o %t.arm.ll
; RUN: %FileCheck %s --check-prefixes=CHECK,ARM < %t.arm.ll
; RUN: %llvm/llc -mtriple=aarch64-linux-gnu -relocation-model=pic -filetype=obj %t.arm.ll -o %t.arm.o
; RUN: %llvm/llvm-objdump -d --no-show-raw-insn %t.arm.o | %FileCheck %s --check-prefix=ARM-CODE
; RUN: %llvm/llc -relocation-model=pic -filetype=obj %t.pairs.ll -o %t.o
; RUN: %llvm/llvm-objdump -d --no-show-raw-insn %t.o | %FileCheck %s --check-prefix=X86-CODE
target triple = "x86_64-unknown-linux-gnu"

declare void @shunt_percpu_add64(ptr, i64)
declare void @shunt_percpu_add32(ptr, i32)
declare void @shunt_percpu_add8(ptr, i8)
declare void @opaque()
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Neighbours share a register.
; CHECK-LABEL: define void @neighbours(
; X86: call { i64, i64 } asm sideeffect "{{.*}}cmpq $1, %fs:2344\0A71:\0Ajne 77f\0Aaddq ${3:q}, ($2, $0)\0Aaddq ${4:q}, 8($2, $0)\0A72:
; X86-SAME: 74:\0Ajne 96f\0Ajc 96f\0A77:
; X86-SAME: lock; addq ${4:q}, -1073741816($2)
; X86-SAME: "=&r,=&r,r,re,re,~{memory}{{.*}}"(ptr %p, i64 1, i64 %n)
; AOT: "=&r,=&r,r,re,re,r,~{memory}{{.*}}"(ptr %p, i64 1, i64 %n, i64
; ARM: call { i64, i64, i64, i32 } asm sideeffect "{{.*}}str ${2:x}, [$1], #1
; ARM-SAME: tbnz $1, #0, 79f
; CHECK-NOT: asm
; CHECK: store volatile i64 0
; CHECK-NEXT: ret void
; ARM-CODE-LABEL: <neighbours>:
; ARM-CODE: mov x[[FIRST:[0-9]+]], #0x0
; ARM-CODE-NEXT: str {{x[0-9]+}}, {{\[}}[[RSEQ:x[0-9]+]], #0x8]
; ARM-CODE-NEXT: ldrsw [[CPU:x[0-9]+]], {{\[}}[[RSEQ]], #0x4]
; ARM-CODE-NEXT: tbnz [[CPU]], #0x3f
; ARM-CODE-NEXT: add x[[FIRST]], {{x[0-9]+}}, [[CPU]], lsl #30
; ARM-CODE-NEXT: add [[SECOND:x[0-9]+]], {{x[0-9]+}}, [[CPU]], lsl #30
; ARM-CODE-NEXT: ldr [[CPU]], {{\[}}x[[FIRST]]]
; ARM-CODE-NEXT: add [[CPU]]
; ARM-CODE-NEXT: str [[CPU]], {{\[}}x[[FIRST]]], #0x1
; ARM-CODE-NEXT: ldr [[CPU]], {{\[}}[[SECOND]]]
; ARM-CODE-NEXT: add [[CPU]]
; ARM-CODE-NEXT: str [[CPU]], {{\[}}[[SECOND]]]
; ARM-CODE: brk #0x45e0
; ARM-CODE-NEXT: tbnz w[[FIRST]], #0x0
; X86-CODE-LABEL: <neighbours>:
; X86-CODE: leaq (%rip), [[CS:%[a-z0-9]+]]
; X86-CODE-NEXT: movq [[CS]], %fs:0x928
; X86-CODE-NEXT: movslq %fs:0x924, [[CPU:%[a-z0-9]+]]
; X86-CODE-NEXT: shlq $0x1e, [[CPU]]
; X86-CODE-NEXT: js
; X86-CODE-NEXT: cmpq [[CS]], %fs:0x928
; X86-CODE-NEXT: jne
; X86-CODE-NEXT: addq $0x1, (%rdi,[[CPU]])
; X86-CODE-NEXT: addq %rsi, 0x8(%rdi,[[CPU]])
; X86-CODE-NEXT: movq $0x0, %fs:0x928
define void @neighbours(ptr %p, i64 %n) {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %bytes = getelementptr i8, ptr %p, i64 8
  call void @shunt_percpu_add64(ptr %bytes, i64 %n)
  ret void
}

; Of two objects; widths may differ; what computes, and the function's own memory, lies between. Three are a pair and one.
; CHECK-LABEL: define void @three(
; X86: call { i64, i64 } asm sideeffect "{{.*}}addl ${3:k}, ($2, $0)\0Aaddq ${5:q}, 0($4, $0)\0A72:{{.*}}(ptr %p, i32 %n, ptr %q, i64 %most)
; X86: call { i64, i32 } asm sideeffect
; AOT: call { i64, i64 } asm sideeffect "{{.*}}(ptr %p, i32 %n, ptr %q, i64 %most, i64
; AOT: call { i64, i32 } asm sideeffect
; ARM: call { i64, i64, i64, i32 } asm sideeffect "{{.*}}(ptr %p, i32 %n, ptr %q, i64 %most, ptr
; ARM: call { i64, i64, i32 } asm sideeffect
; CHECK-NOT: asm
; CHECK: ret void
define void @three(ptr %p, ptr %q, i32 %n) {
  %own = alloca i64
  call void @shunt_percpu_add32(ptr %p, i32 %n)
  %wide = zext i32 %n to i64
  %most = call i64 @llvm.umax.i64(i64 %wide, i64 60)
  store i64 %most, ptr %own
  call void @shunt_percpu_add64(ptr %q, i64 %most)
  %again = load i64, ptr %own
  call void @shunt_percpu_add64(ptr %q, i64 %again)
  ret void
}

; Twice the same one, in order. An index that differs by a constant, as unrolled loops have it.
; CHECK-LABEL: define void @same(
; X86: asm sideeffect "{{.*}}addq ${3:q}, ($2, $0)\0Aaddq ${4:q}, 0($2, $0)\0A72:
; CHECK: ret void
define void @same(ptr %p) {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  call void @shunt_percpu_add64(ptr %p, i64 2)
  ret void
}

; CHECK-LABEL: define void @indexed(
; X86: asm sideeffect "{{.*}}addq ${3:q}, ($2, $0)\0Aaddq ${4:q}, 8($2, $0)\0A72:
; X86: asm sideeffect "{{.*}}addq ${3:q}, ($2, $0)\0Aaddq ${5:q}, 0($4, $0)\0A72:
; CHECK: ret void
define void @indexed(ptr %p, i32 %i) {
  %even = and i32 %i, 240
  %e = zext i32 %even to i64
  %at = getelementptr i8, ptr %p, i64 %e
  call void @shunt_percpu_add64(ptr %at, i64 1)
  %even.2 = and i32 %i, 240
  %odd = or disjoint i32 %even.2, 8
  %o = zext i32 %odd to i64
  %beside = getelementptr i8, ptr %p, i64 %o
  call void @shunt_percpu_add64(ptr %beside, i64 1)
; This sum may wrap, and be no neighbour.
  call void @shunt_percpu_add64(ptr %at, i64 1)
  %sum = add i32 %even, 8
  %s = zext i32 %sum to i64
  %there = getelementptr i8, ptr %p, i64 %s
  call void @shunt_percpu_add64(ptr %there, i64 1)
  ret void
}

; A byte's address may be odd, where arm64 sees an addition that was done.
; CHECK-LABEL: define void @bytes(
; X86: call { i64, i64 } asm sideeffect
; ARM: call { i64, i64, i32 } asm sideeffect
; ARM: call { i64, i64, i32 } asm sideeffect
; CHECK: ret void
define void @bytes(ptr %p, ptr %q) {
  call void @shunt_percpu_add8(ptr %p, i8 1)
  call void @shunt_percpu_add64(ptr %q, i64 1)
  ret void
}

; What may look at the first, or wait for it.
; CHECK-LABEL: define i64 @in_the_way(
; CHECK-COUNT-14: asm sideeffect
; CHECK-NOT: asm sideeffect
; CHECK: ret i64
define i64 @in_the_way(ptr %p, ptr %q, ptr %other) {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %seen = load i64, ptr %other
  call void @shunt_percpu_add64(ptr %q, i64 %seen)
  store i64 1, ptr %other
  call void @shunt_percpu_add64(ptr %q, i64 1)
  fence seq_cst
  call void @shunt_percpu_add64(ptr %q, i64 1)
  call void @opaque()
  call void @shunt_percpu_add64(ptr %q, i64 1)
  call void @llvm.memcpy.p0.p0.i64(ptr %other, ptr %q, i64 8, i1 false)
  call void @shunt_percpu_add64(ptr %q, i64 1)
  %a = atomicrmw add ptr %other, i64 1 monotonic
  call void @shunt_percpu_add64(ptr %q, i64 1)
  %v = load volatile i64, ptr %other
  call void @shunt_percpu_add64(ptr %q, i64 1)
  call void asm sideeffect "", "~{memory}"()
  call void @shunt_percpu_add64(ptr %q, i64 1)
  br label %next
next:
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %c = cmpxchg ptr %other, i64 1, i64 2 monotonic monotonic
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %w = load atomic i64, ptr %other monotonic, align 8
  call void @shunt_percpu_add64(ptr %p, i64 1)
  store atomic i64 1, ptr %other monotonic, align 8
  call void @shunt_percpu_add64(ptr %p, i64 1)
  ret i64 %seen
}

; Who writes the description beside something else gets no pair of it.
declare i64 @no_sequence(ptr, i64)
; CHECK-LABEL: define i64 @described_only(
; CHECK: call i64 @no_sequence(
; CHECK: call i64 @no_sequence(
; CHECK-COUNT-2: call i64 asm sideeffect "nop"
; CHECK-COUNT-8: call void asm sideeffect "nop"
define i64 @described_only(ptr %p) {
  %a = call i64 @no_sequence(ptr %p, i64 1), !shunt.sequence !0
  %b = call i64 @no_sequence(ptr %p, i64 1), !shunt.sequence !0
  %c = call i64 asm sideeffect "nop", "=r,r,r"(ptr %p, i64 1), !shunt.sequence !0
  %d = call i64 asm sideeffect "nop", "=r,r,r"(ptr %p, i64 1), !shunt.sequence !0
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !1
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !1
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !2
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !2
  call void asm sideeffect "nop", "r,r"(ptr %p, i32 1), !shunt.sequence !0
  call void asm sideeffect "nop", "r,r"(ptr %p, i32 1), !shunt.sequence !0
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !3
  call void asm sideeffect "nop", "r,r"(ptr %p, i64 1), !shunt.sequence !3
  %s = add i64 %a, %b
  %t = add i64 %c, %d
  %u = add i64 %s, %t
  ret i64 %u
}
!0 = !{i32 0, i32 64, i64 -160}
!1 = !{i32 9, i32 64, i64 -160}
!2 = !{i32 0, i32 24, i64 -160}
!3 = !{i32 0, i32 64, i64 81604378624}
