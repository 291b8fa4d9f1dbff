; An update that is no addition may be the second of a pair, not the first: whether it was done cannot be seen.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact>' --llvm-after='function(dce)' %s | %shunt-opt -p shunt-pairs - | %FileCheck %s
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt -p 'shunt-percpu<cpu=rseq:-28;rmw=exact>' --llvm-after='function(dce)' - | %shunt-opt -p shunt-pairs - | %FileCheck %s --check-prefix=ARM
; A loop of one update is unrolled by LLVM when it is made for this process, and its updates pair up; not with two, or a call.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340;rmw=exact>' --llvm-after='default<O2>' %s | %shunt-opt -p shunt-pairs - | %FileCheck %s --check-prefix=LOOP
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq;rmw=exact>' %s | %FileCheck %s --check-prefix=NO-LOOP
; NO-LOOP-NOT: unroll.count
target triple = "x86_64-unknown-linux-gnu"

declare ptr @shunt_percpu_this(ptr)
declare void @shunt_percpu_add64(ptr, i64)
declare void @opaque() nounwind willreturn

; CHECK-LABEL: define void @or_then_add(
; CHECK-COUNT-2: call { i64, i32 } asm sideeffect
; CHECK: ret void
; ARM-LABEL: define void @or_then_add(
; ARM-COUNT-2: call { i64, i64, i32 } asm sideeffect
; ARM: ret void
define void @or_then_add(ptr %p, i64 %n) {
  %q = call ptr @shunt_percpu_this(ptr %p)
  %v = load i64, ptr %q, align 8
  %w = or i64 %v, %n
  store i64 %w, ptr %q, align 8
  call void @shunt_percpu_add64(ptr %p, i64 1)
  ret void
}

; CHECK-LABEL: define void @add_then_xor(
; CHECK: call { i64, i64 } asm sideeffect "{{.*}}addq ${3:q}, ($2, $0)\0Axorq ${4:q}, 8($2, $0)\0A72:
; CHECK: ret void
; ARM-LABEL: define void @add_then_xor(
; ARM: call { i64, i64, i64, i32 } asm sideeffect "{{.*}}str ${2:x}, [$1], #1\0Aldr ${2:x}, [$0]\0Aeor ${2:x}, ${2:x}, ${7:x}
; ARM: ret void
define void @add_then_xor(ptr %p, i64 %n) {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %q = call ptr @shunt_percpu_this(ptr %p)
  %b = getelementptr i8, ptr %q, i64 8
  %v = load i64, ptr %b, align 8
  %w = xor i64 %v, %n
  store i64 %w, ptr %b, align 8
  ret void
}

; LOOP-LABEL: define void @loop(
; LOOP-COUNT-2: call { i64, i64 } asm sideeffect
; LOOP: ret void
define void @loop(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %k = and i64 %i, 15
  %at = getelementptr i64, ptr %p, i64 %k
  call void @shunt_percpu_add64(ptr %at, i64 %n)
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 1000
  br i1 %done, label %end, label %loop
end:
  ret void
}

; LOOP-LABEL: define void @two(
; LOOP-COUNT-1: call { i64, i64 } asm sideeffect
; LOOP-NOT: asm
; LOOP: ret void
define void @two(ptr %p, ptr %q, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @shunt_percpu_add64(ptr %p, i64 %i)
  call void @shunt_percpu_add64(ptr %q, i64 %i)
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 1000
  br i1 %done, label %end, label %loop
end:
  ret void
}

; LOOP-LABEL: define void @with_call(
; LOOP-COUNT-1: asm sideeffect
; LOOP-NOT: asm
; LOOP: ret void
define void @with_call(ptr %p) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @shunt_percpu_add64(ptr %p, i64 %i)
  call void @opaque()
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 1000
  br i1 %done, label %end, label %loop
end:
  ret void
}

; Somebody's own wish stays.
; LOOP-LABEL: define void @not_asked(
; LOOP-COUNT-1: asm sideeffect
; LOOP-NOT: asm
; LOOP: ret void
define void @not_asked(ptr %p) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @shunt_percpu_add64(ptr %p, i64 %i)
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, 1000
  br i1 %done, label %end, label %loop, !llvm.loop !0
end:
  ret void
}

!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.mustprogress"}
!2 = !{!"llvm.loop.unroll.disable"}
