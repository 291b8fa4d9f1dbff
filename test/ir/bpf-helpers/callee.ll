; How a front end may spell a helper number, and what is not one.
; RUN: %shunt-opt --passes=shunt-bpf-helpers --remarks=%t.yaml %s -o %t.ll && %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=MISSED < %t.yaml
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-bpf-helpers - | %FileCheck %s
; RUN: %shunt-opt --passes=shunt-bpf-helpers %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
target triple = "x86_64-unknown-linux-gnu"

@static_pointer = internal global ptr inttoptr (i64 8 to ptr)
@const_pointer = constant ptr inttoptr (i64 8 to ptr)
@written = internal global ptr inttoptr (i64 8 to ptr)
@visible = global ptr inttoptr (i64 8 to ptr)
declare i64 @_bpf_helper_ext_0008(i64, i64, i64, i64, i64)
declare i64 @_bpf_helper_ext_0005(...)
declare i64 @_bpf_helper_ext_008(i64)
declare i32 @ordinary()
declare i32 @__gxx_personality_v0(...)

; CHECK-LABEL: define void @numbers(
; CHECK-COUNT-7: call i32 @shunt_cpu_id()
define void @numbers(i1 %c) {
entry:
  call i32 inttoptr (i64 8 to ptr)()
  %a = load ptr, ptr @static_pointer
  call i32 %a()
  %b = load ptr, ptr @const_pointer
  call i32 %b()
  %slot = alloca i64
  store i64 8, ptr %slot
  %n = load i64, ptr %slot
  %d = inttoptr i64 %n to ptr
  call i32 %d()
  call i64 @_bpf_helper_ext_0008(i64 undef, i64 undef, i64 undef, i64 undef, i64 undef)
  %same = select i1 %c, ptr %d, ptr inttoptr (i64 8 to ptr)
  call i32 %same()
  br i1 %c, label %left, label %join
left:
  br label %join
join:
  %phi = phi ptr [ %a, %entry ], [ inttoptr (i64 8 to ptr), %left ]
  call i32 %phi()
  ret void
}

; A symbol of another number is what it would become.
; CHECK-LABEL: define void @symbols(
; CHECK-NEXT: call i64 (...) @_bpf_helper_ext_0005()
; CHECK-NEXT: call i64 @_bpf_helper_ext_008(i64 1)
; CHECK-NEXT: call i32 @ordinary()
define void @symbols() {
  call i64 (...) @_bpf_helper_ext_0005()
  call i64 @_bpf_helper_ext_008(i64 1)
  call i32 @ordinary()
  ret void
}

; CHECK-LABEL: define void @left(
; CHECK-NOT: @shunt_cpu_id
; CHECK: call i32 inttoptr (i64 10000 to ptr)()
; CHECK-NEXT: call i32 inttoptr (i64 140737488355328 to ptr)()
; CHECK-NOT: @shunt_cpu_id
; CHECK: ret void
define void @left(i1 %c, ptr %unknown) {
  store ptr null, ptr @written
  %a = load ptr, ptr @written
  call i32 %a()
  %b = load ptr, ptr @visible
  call i32 %b()
  %v = load volatile ptr, ptr @const_pointer
  call i32 %v()
  call i32 %unknown()
  call i32 inttoptr (i64 10000 to ptr)()
  call i32 inttoptr (i64 140737488355328 to ptr)()
; MISSED: Name: VariableHelper
  %two = select i1 %c, ptr inttoptr (i64 8 to ptr), ptr inttoptr (i64 5 to ptr)
  call i32 %two()
; one arm may be a host function: not our business
  %host = select i1 %c, ptr inttoptr (i64 8 to ptr), ptr @ordinary
  call i32 %host()
  ret void
}

; MISSED: Name: Invoke
; CHECK-LABEL: define i32 @invoked(
; CHECK: invoke i32 inttoptr (i64 8 to ptr)()
define i32 @invoked() personality ptr @__gxx_personality_v0 {
  %r = invoke i32 inttoptr (i64 8 to ptr)() to label %ok unwind label %bad
ok:
  ret i32 %r
bad:
  %pad = landingpad { ptr, i32 } cleanup
  ret i32 0
}
; MISSED-NOT: Missed
