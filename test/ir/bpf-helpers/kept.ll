; What stays on a helper call, and the calls that stay as they are.
; RUN: %shunt-opt --passes=shunt-bpf-helpers --remarks=%t.yaml %s -o %t.ll && %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-bpf-helpers - | %FileCheck %s
; A second run finds the calls that were left, only.
; RUN: %shunt-opt --passes=shunt-bpf-helpers --remarks=%t.again.yaml %t.ll -o %t.again.ll && grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; RUN: grep -A2 Missed %t.yaml > %t.3 && grep -A2 Missed %t.again.yaml > %t.4 && cmp %t.3 %t.4
target triple = "x86_64-unknown-linux-gnu"

@map = external global i8
declare i32 @__gxx_personality_v0(...)

; CHECK-LABEL: define ptr @everything(
; CHECK-NEXT: %r = tail call ptr @shunt_map_lookup(ptr @map, ptr %k) #[[SITE:[0-9]+]] [ "deopt"(i32 1) ], !prof ![[PROF:[0-9]+]], !srcloc ![[SRC:[0-9]+]]
define ptr @everything(ptr %k) {
  %r = tail call ptr inttoptr (i64 1 to ptr)(ptr @map, ptr %k) nounwind "site"="x" [ "deopt"(i32 1) ], !prof !1, !srcloc !0
  ret ptr %r
}

; CHECK-LABEL: define i64 @strict(
; CHECK: notail call i64 @_bpf_helper_ext_0025(i64 %{{.*}}, i64 %{{.*}}, i64 0, i64 0, i64 0) #[[STRICT:[0-9]+]]
define i64 @strict(ptr %m, ptr %k) strictfp {
  %r = notail call i64 inttoptr (i64 25 to ptr)(ptr %m, ptr %k) strictfp
  ret i64 %r
}

; Its caller's prototype is not the helper's: it becomes a call and a return, like any other.
; CHECK-LABEL: define i64 @musttail(
; CHECK-NEXT: %r = call i64 @_bpf_helper_ext_0025(i64 %a, i64 %b, i64 0, i64 0, i64 0)
; CHECK-NEXT: ret i64 %r
define i64 @musttail(i64 %a, i64 %b) {
  %r = musttail call i64 inttoptr (i64 25 to ptr)(i64 %a, i64 %b)
  ret i64 %r
}

; CHECK-LABEL: define ptr @invoked(
; CHECK-NEXT: invoke ptr inttoptr (i64 1 to ptr)(ptr @map, ptr %k)
; WHY: Name: Invoke
define ptr @invoked(ptr %k) personality ptr @__gxx_personality_v0 {
  %r = invoke ptr inttoptr (i64 1 to ptr)(ptr @map, ptr %k) to label %ok unwind label %bad
ok:
  ret ptr %r
bad:
  %pad = landingpad { ptr, i32 } cleanup
  ret ptr null
}

; CHECK-LABEL: define void @bundles(
; CHECK-NEXT: call i64 inttoptr (i64 25 to ptr)(i64 1) [ "kcfi"(i32 1234) ]
; CHECK-NEXT: call i64 inttoptr (i64 25 to ptr)(i64 1) [ "ptrauth"(i32 0, i64 42) ]
; WHY: Name: Bundle
; WHY: Name: Bundle
define void @bundles() {
  call i64 inttoptr (i64 25 to ptr)(i64 1) [ "kcfi"(i32 1234) ]
  call i64 inttoptr (i64 25 to ptr)(i64 1) [ "ptrauth"(i32 0, i64 42) ]
  ret void
}

; CHECK-LABEL: define void @spaces(
; CHECK-NEXT: call i64 inttoptr (i64 25 to ptr)(ptr addrspace(1) null)
; CHECK-NEXT: call addrspace(1) i64 inttoptr (i64 25 to ptr addrspace(1))(i64 1)
; CHECK-NEXT: call i64 (i64, ...) inttoptr (i64 25 to ptr)(i64 1, double 1.000000e+00)
; WHY: Name: UnexpectedSignature
; WHY: Name: AddressSpace
; WHY: Name: UnexpectedSignature
define void @spaces() {
  call i64 inttoptr (i64 25 to ptr)(ptr addrspace(1) null)
  call addrspace(1) i64 inttoptr (i64 25 to ptr addrspace(1))(i64 1)
  call i64 (i64, ...) inttoptr (i64 25 to ptr)(i64 1, double 1.0)
  ret void
}

; CHECK-DAG: attributes #[[SITE]] = { nounwind "site"="x" }
; CHECK-DAG: attributes #[[STRICT]] = { strictfp }
; CHECK-DAG: ![[PROF]] = !{!"branch_weights", i32 7}
; CHECK-DAG: ![[SRC]] = !{i32 1}
!0 = !{i32 1}
!1 = !{!"branch_weights", i32 7}
