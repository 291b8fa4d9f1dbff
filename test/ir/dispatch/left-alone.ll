; Calls that must stay, each with its reason; the module still verifies and a second run says the same.
; RUN: %shunt-opt --passes=shunt-dispatch --remarks=%t.yaml --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt --passes=shunt-dispatch --remarks=%t.again.yaml %t.ll -o %t.again.ll && cmp %t.yaml %t.again.yaml
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-dispatch --remarks=%t.arm.yaml - | %FileCheck %s
; RUN: %FileCheck %s --check-prefix=WHY < %t.arm.yaml
; COUNTS: dispatches 0
; COUNTS: missed 23
; CHECK-NOT: call {{.*}} @shunt_stub
target triple = "x86_64-unknown-linux-gnu"

declare i32 @known(ptr)
@alias = alias i32 (ptr), ptr @defined
@"shunt_stub.taken" = global i32 0
define i32 @defined(ptr %ctx) {
  ret i32 0
}

; WHY: Name: DirectCall
; WHY: Name: DirectCall
; WHY: Name: InlineAsm
; WHY: Name: NoProgram
; WHY: Name: NoProgram
; WHY: Name: AddressSpace
define void @callees(ptr %ctx, ptr addrspace(1) %far) {
  call i32 @known(ptr %ctx), !shunt.dispatch !0
  call i32 @alias(ptr %ctx), !shunt.dispatch !0
  call void asm sideeffect "", ""(), !shunt.dispatch !0
  call i32 null(ptr %ctx), !shunt.dispatch !0
  call i32 undef(ptr %ctx), !shunt.dispatch !0
  call addrspace(1) i32 %far(ptr %ctx), !shunt.dispatch !0
  ret void
}

; WHY: Name: MustTail
define i32 @musttail(ptr %ctx, ptr %p) {
  %r = musttail call i32 %p(ptr %ctx, ptr %p), !shunt.dispatch !0
  ret i32 %r
}

; WHY: Name: InAlloca
; WHY: Name: NestInUse
define void @arguments(ptr %ctx, ptr %p) {
  %mem = alloca inalloca { i32 }
  call void %p(ptr inalloca({ i32 }) %mem), !shunt.dispatch !0
  call void %p(ptr nest %ctx), !shunt.dispatch !0
  ret void
}

; WHY: Name: Bundle
; WHY: Name: Bundle
define void @bundles(ptr %ctx, ptr %p) {
  call void %p(ptr %ctx) [ "kcfi"(i32 1234) ], !shunt.dispatch !0
  call void %p(ptr %ctx) [ "ptrauth"(i32 0, i64 42) ], !shunt.dispatch !0
  ret void
}

; WHY-COUNT-9: Name: BadMark
define void @marks(ptr %ctx, ptr %p) {
  call void %p(ptr %ctx), !shunt.dispatch !1
  call void %p(ptr %ctx), !shunt.dispatch !2
  call void %p(ptr %ctx), !shunt.dispatch !3
  call void %p(ptr %ctx), !shunt.dispatch !4
  call void %p(ptr %ctx), !shunt.dispatch !5
  call void %p(ptr %ctx), !shunt.dispatch !6
  call void %p(ptr %ctx), !shunt.dispatch !7
  call void %p(ptr %ctx), !shunt.dispatch !8
  call void %p(ptr %ctx), !shunt.dispatch !9
  ret void
}

; WHY: Name: NameTaken
define void @taken(ptr %ctx, ptr %p) {
  call void %p(ptr %ctx), !shunt.dispatch !10
  ret void
}

; WHY: Name: CallBr
define void @branching(ptr %p) {
  callbr void asm sideeffect "", "!i"() to label %a [label %b], !shunt.dispatch !0
a:
  ret void
b:
  ret void
}

; WHY: Name: CallingConvention
define void @convention(ptr %p) {
  call ghccc void %p(), !shunt.dispatch !0
  ret void
}

!0 = !{!"xdp"}
!1 = !{}
!2 = !{null}
!3 = !{i32 1}
!4 = !{!"a", !"b"}
!5 = !{!""}
!6 = !{!"two words"}
!7 = !{!"1st"}
!8 = !{!"a_name_that_is_longer_than_sixty_three_bytes_and_no_dispatcher_has"}
!9 = !{!0}
!10 = !{!"taken"}
