; The thread's rseq_cs is cleared on the ways out of a function, not behind each sequence.
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq:2340>' %t.ll | grep -v ModuleID > %t.again
; RUN: grep -v ModuleID %t.ll | diff - %t.again
; RUN: %shunt-opt -p 'shunt-percpu<cpu=rseq>' %s | %FileCheck %s --check-prefix=AOT
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt -p 'shunt-percpu<cpu=rseq:-28>' - | %FileCheck %s --check-prefix=ARM
target triple = "x86_64-unknown-linux-gnu"

declare void @shunt_percpu_add64(ptr, i64)
declare ptr @shunt_map_lookup(ptr, ptr)
declare void @comes_back() nounwind willreturn
declare void @opaque()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @personality(...)

; CHECK-LABEL: @loop(
; CHECK: loop:
; CHECK-COUNT-2: call {{.*}}asm sideeffect
; CHECK-NOT: store volatile
; CHECK: end:
; CHECK-NEXT: store volatile i64 0, ptr addrspace(257) inttoptr (i64 2344 to ptr addrspace(257)), align 8
; CHECK-NEXT: ret void
; AOT-LABEL: @loop(
; AOT: end:
; AOT-NEXT: [[RSEQ:%.*]] = load i64, ptr @__rseq_offset
; AOT-NEXT: [[CS:%.*]] = add i64 [[RSEQ]], 8
; AOT-NEXT: [[P:%.*]] = inttoptr i64 [[CS]] to ptr addrspace(257)
; AOT-NEXT: store volatile i64 0, ptr addrspace(257) [[P]], align 8
; AOT-NEXT: ret void
; ARM-LABEL: @loop(
; ARM: end:
; ARM-NEXT: [[THREAD:%.*]] = call ptr @llvm.thread.pointer()
; ARM-NEXT: [[AREA:%.*]] = getelementptr i8, ptr [[THREAD]], i64 -32
; ARM-NEXT: [[CS:%.*]] = getelementptr i8, ptr [[AREA]], i64 8
; ARM-NEXT: store volatile i64 0, ptr [[CS]], align 8
; ARM-NEXT: ret void
define void @loop(ptr %p, i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %i1, %loop ]
  call void @shunt_percpu_add64(ptr %p, i64 1)
  call void @shunt_percpu_add64(ptr %p, i64 2)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

; What returns to its place needs nothing before it; what may not, does, and what follows it is not armed any more.
; CHECK-LABEL: @calls(
; CHECK: call {{.*}}asm sideeffect
; CHECK-NEXT: call ptr @shunt_map_lookup
; CHECK-NEXT: call void @comes_back
; CHECK-NEXT: call void @llvm.memcpy
; CHECK-NEXT: store volatile i64 0
; CHECK-NEXT: call void @opaque
; CHECK-NEXT: call void @opaque
; CHECK-NEXT: ret void
define void @calls(ptr %p, ptr %q) {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  %v = call ptr @shunt_map_lookup(ptr %p, ptr %q)
  call void @comes_back()
  call void @llvm.memcpy.p0.p0.i64(ptr %v, ptr %q, i64 8, i1 false)
  call void @opaque()
  call void @opaque()
  ret void
}

; Only the arm that counted clears.
; CHECK-LABEL: @arms(
; CHECK: a:
; CHECK-NEXT: call {{.*}}asm sideeffect
; CHECK-NEXT: store volatile i64 0
; CHECK-NEXT: ret void
; CHECK: b:
; CHECK-NEXT: ret void
define void @arms(ptr %p, i1 %c) {
  br i1 %c, label %a, label %b
a:
  call void @shunt_percpu_add64(ptr %p, i64 1)
  ret void
b:
  ret void
}

; Exceptions: before the call that may throw, and where one goes on.
; CHECK-LABEL: @unwinds(
; CHECK: call {{.*}}asm sideeffect
; CHECK-NEXT: store volatile i64 0
; CHECK-NEXT: invoke void @opaque()
; CHECK: ok:
; CHECK-NEXT: ret void
; CHECK: bad:
; CHECK: call {{.*}}asm sideeffect
; CHECK-NEXT: store volatile i64 0
; CHECK-NEXT: resume
define void @unwinds(ptr %p) personality ptr @personality {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  invoke void @opaque() to label %ok unwind label %bad
ok:
  ret void
bad:
  %e = landingpad { ptr, i32 } cleanup
  call void @shunt_percpu_add64(ptr %p, i64 2)
  resume { ptr, i32 } %e
}

; CHECK-LABEL: @tail(
; CHECK: call {{.*}}asm sideeffect
; CHECK-NEXT: store volatile i64 0
; CHECK-NEXT: musttail call void @tail
; CHECK-NEXT: ret void
define void @tail(ptr %p) nounwind willreturn {
  call void @shunt_percpu_add64(ptr %p, i64 1)
  musttail call void @tail(ptr %p)
  ret void
}
