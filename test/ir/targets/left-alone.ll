; Calls that must not be copied, marks that are none, targets that do not fit: each with its reason.
; RUN: %shunt-opt --passes=shunt-targets --remarks=%t.yaml --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt --passes=shunt-targets --remarks=%t.again.yaml %t.ll -o %t.again.ll && grep Name: %t.yaml | grep -v TargetMismatch > %t.1 && grep Name: %t.again.yaml > %t.2 && cmp %t.1 %t.2
; COUNTS: static_calls 0
; COUNTS: missed 17
; CHECK-NOT: icmp
target triple = "x86_64-unknown-linux-gnu"

declare i32 @a(ptr)
declare i64 @longer(ptr)
declare fastcc i32 @fast(ptr)
declare i32 @inalloca(ptr inalloca({ i32 }))
@variable = global i32 0

; WHY: Name: InlineAsm
; WHY-COUNT-3: Name: NotDuplicable
; WHY-COUNT-2: Name: Bundle
define void @calls(ptr %ctx, ptr %f) {
  call void asm sideeffect "", ""(), !shunt.targets !0
  call i32 %f(ptr %ctx) noduplicate, !shunt.targets !0
  call i32 %f(ptr %ctx) convergent, !shunt.targets !0
  call i32 %f(ptr %ctx) returns_twice, !shunt.targets !0
  call i32 %f(ptr %ctx) [ "kcfi"(i32 1234) ], !shunt.targets !0
  call i32 %f(ptr %ctx) [ "ptrauth"(i32 0, i64 42) ], !shunt.targets !0
  ret void
}

; WHY: Name: InAlloca
define void @arguments(ptr %f) {
  %mem = alloca inalloca { i32 }
  call i32 %f(ptr inalloca({ i32 }) %mem), !shunt.targets !1
  ret void
}

; WHY: Name: CallBr
define void @branching(ptr %f) {
  callbr void asm sideeffect "", "!i"() to label %a [label %b], !shunt.targets !0
a:
  ret void
b:
  ret void
}

; WHY-COUNT-5: Name: BadMark
define void @marks(ptr %ctx, ptr %f) {
  call i32 %f(ptr %ctx), !shunt.targets !2
  call i32 %f(ptr %ctx), !shunt.targets !3
  call i32 %f(ptr %ctx), !shunt.targets !4
  call i32 %f(ptr %ctx), !shunt.targets !5
  call i32 %f(ptr %ctx), !shunt.targets !6
  ret void
}

; WHY-COUNT-4: Name: TargetMismatch
define void @mismatches(ptr %ctx, ptr %f, ptr addrspace(1) %far) {
  call i32 %f(ptr %ctx), !shunt.targets !7
  call i32 %f(ptr %ctx), !shunt.targets !8
  call addrspace(1) i32 %far(ptr %ctx), !shunt.targets !0
  call i64 %f(ptr %ctx, i32 1), !shunt.targets !7
  ret void
}

!0 = !{ptr @a}
!1 = !{ptr @inalloca}
!2 = !{!"a"}
!3 = !{i64 1}
!4 = !{ptr @variable}
!5 = !{!0}
!6 = !{ptr @a, i64 1, i64 2}
!7 = !{ptr @longer}
!8 = !{ptr @fast}
