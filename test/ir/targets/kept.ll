; What else is on every copy of a call with known targets: memory arguments, attributes, conventions, strict floating point.
; RUN: %shunt-opt --passes=shunt-targets --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-targets - | %FileCheck %s
; COUNTS: static_calls 5
; COUNTS: missed 0
target triple = "x86_64-unknown-linux-gnu"

declare void @big(ptr sret({ i64, i64, i64 }) align 8, i8 zeroext)
declare ptr @same(ptr returned, ptr addrspace(1))
declare preserve_mostcc i32 @most(i32)
declare double @fp(double)
declare tailcc i32 @tailed(i32)

; CHECK-LABEL: define void @memory(
; CHECK: call void @big(ptr sret({ i64, i64, i64 }) align 8 %out, i8 zeroext %b)
; CHECK: call void %f(ptr sret({ i64, i64, i64 }) align 8 %out, i8 zeroext %b)
define void @memory(ptr %out, i8 %b, ptr %f) {
  call void %f(ptr sret({ i64, i64, i64 }) align 8 %out, i8 zeroext %b), !shunt.targets !0
  ret void
}

; CHECK-LABEL: define ptr @arguments(
; CHECK: call nonnull ptr @same(ptr returned %p, ptr addrspace(1) noalias %far)
; CHECK: call nonnull ptr %f(ptr returned %p, ptr addrspace(1) noalias %far)
define ptr @arguments(ptr %p, ptr addrspace(1) %far, ptr %f) {
  %r = call nonnull ptr %f(ptr returned %p, ptr addrspace(1) noalias %far), !shunt.targets !1
  ret ptr %r
}

; CHECK-LABEL: define i32 @convention(
; CHECK: notail call preserve_mostcc i32 @most(i32 1)
; CHECK: notail call preserve_mostcc i32 %f(i32 1)
define i32 @convention(ptr %f) {
  %r = notail call preserve_mostcc i32 %f(i32 1), !shunt.targets !2
  ret i32 %r
}

; CHECK-LABEL: define double @strict(
; CHECK: call nnan double @fp(double %x) #[[STRICT:[0-9]+]]
; CHECK: call nnan double %f(double %x) #[[STRICT]]
define double @strict(double %x, ptr %f) strictfp {
  %r = call nnan double %f(double %x) strictfp, !shunt.targets !3
  ret double %r
}

; CHECK-LABEL: define tailcc i32 @tail(
; CHECK: musttail call tailcc i32 @tailed(i32 %n)
; CHECK-NEXT: ret i32
; CHECK: musttail call tailcc i32 %f(i32 %n)
; CHECK-NEXT: ret i32
define tailcc i32 @tail(i32 %n, ptr %f) {
  %r = musttail call tailcc i32 %f(i32 %n), !shunt.targets !4
  ret i32 %r
}

; CHECK: attributes #[[STRICT]] = { strictfp }
!0 = !{ptr @big}
!1 = !{ptr @same}
!2 = !{ptr @most}
!3 = !{ptr @fp}
!4 = !{ptr @tailed}
