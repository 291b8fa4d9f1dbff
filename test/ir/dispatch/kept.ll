; What else stays on a dispatched call: results in vectors and structs, attributes of the site and of arguments, strict floating point.
; RUN: %shunt-opt --passes=shunt-dispatch --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s
; COUNTS: dispatches 7
; COUNTS: missed 0
target triple = "x86_64-unknown-linux-gnu"

; CHECK-LABEL: define <4 x i32> @vectors(
; CHECK: call <4 x i32> @shunt_stub.vector(<4 x i32> %v, <2 x double> %w, ptr nest %p)
define <4 x i32> @vectors(<4 x i32> %v, <2 x double> %w, ptr %p) {
  %r = call <4 x i32> %p(<4 x i32> %v, <2 x double> %w), !shunt.dispatch !0
  ret <4 x i32> %r
}

; CHECK-LABEL: define i32 @structs(
; CHECK: call { i64, i32 } @shunt_stub.struct({ i64, i32 } %s, [2 x i64] %a, ptr nest %p)
define i32 @structs({ i64, i32 } %s, [2 x i64] %a, ptr %p) {
  %r = call { i64, i32 } %p({ i64, i32 } %s, [2 x i64] %a), !shunt.dispatch !1
  %i = extractvalue { i64, i32 } %r, 1
  ret i32 %i
}

; CHECK-LABEL: define ptr @arguments(
; CHECK: call noundef nonnull ptr @shunt_stub.argument(ptr returned %ctx, ptr nocapture readonly %q, i8 zeroext %b, ptr addrspace(1) noalias %far, ptr nest %p)
define ptr @arguments(ptr %ctx, ptr %q, i8 %b, ptr addrspace(1) %far, ptr %p) {
  %r = call noundef nonnull ptr %p(ptr returned %ctx, ptr nocapture readonly %q, i8 zeroext %b, ptr addrspace(1) noalias %far), !shunt.dispatch !2
  ret ptr %r
}

; CHECK-LABEL: define double @strict(
; CHECK-NEXT: call double @shunt_stub.fp(double %x, ptr nest %p) #[[STRICT:[0-9]+]]
define double @strict(double %x, ptr %p) strictfp {
  %r = call double %p(double %x) strictfp, !shunt.dispatch !3
  ret double %r
}

; CHECK-LABEL: define void @sites(
; CHECK-NEXT: call void @shunt_stub.site(ptr nest %p) #[[ONCE:[0-9]+]]
; CHECK-NEXT: call void @shunt_stub.site(ptr nest %p) #[[BUILTIN:[0-9]+]]
; CHECK-NEXT: call void @shunt_stub.site(ptr nest %p) #[[END:[0-9]+]]
; CHECK-NEXT: unreachable
define void @sites(ptr %p) {
  call void %p() convergent noduplicate cold, !shunt.dispatch !4
  call void %p() returns_twice noinline, !shunt.dispatch !4
  call void %p() noreturn nomerge, !shunt.dispatch !4
  unreachable
}

; CHECK-DAG: attributes #[[STRICT]] = { strictfp }
; CHECK-DAG: attributes #[[ONCE]] = { cold convergent noduplicate }
; CHECK-DAG: attributes #[[BUILTIN]] = { noinline returns_twice }
; CHECK-DAG: attributes #[[END]] = { nomerge noreturn }
!0 = !{!"vector"}
!1 = !{!"struct"}
!2 = !{!"argument"}
!3 = !{!"fp"}
!4 = !{!"site"}
