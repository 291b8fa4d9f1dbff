; Annotations of others, marks without a name and calls that no mark reaches stay; so does a mark that is there already.
; RUN: %shunt-opt --passes=shunt-mark --stats %s -o %t.ll 2> %t.stats && %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=COUNTS < %t.stats
; COUNTS: marked 1
; COUNTS: missed 0
target triple = "x86_64-unknown-linux-gnu"

@.theirs = private unnamed_addr constant [7 x i8] c"theirs\00", section "llvm.metadata"
@.ours = private unnamed_addr constant [19 x i8] c"shunt.dispatch:xdp\00", section "llvm.metadata"
@.nameless = private unnamed_addr constant [16 x i8] c"shunt.dispatch:\00", section "llvm.metadata"
@.targets = private unnamed_addr constant [14 x i8] c"shunt.targets\00", section "llvm.metadata"
@.file = private unnamed_addr constant [4 x i8] c"a.c\00", section "llvm.metadata"
@unknown = external constant [19 x i8]

declare ptr @llvm.ptr.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)
declare void @llvm.var.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)
declare void @take(ptr)

; CHECK-LABEL: define void @f(
; CHECK: llvm.ptr.annotation.p0.p0(ptr %h, ptr @.theirs
; CHECK-NOT: !shunt
; CHECK: ret void
define void @f(ptr %h) {
  %a = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @.theirs, ptr @.file, i32 1, ptr null)
  %b = load ptr, ptr %a
  call void %b()
  %c = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @.nameless, ptr @.file, i32 1, ptr null)
  %d = load ptr, ptr %c
  call void %d()
  %e = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @.targets, ptr @.file, i32 1, ptr null)
  %f = load ptr, ptr %e
  call void %f()
  %g = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @unknown, ptr @.file, i32 1, ptr null)
  %i = load ptr, ptr %g
  call void %i()
  ret void
}

; What is loaded is the program, not a place that programs are in; an argument is not called here.
; CHECK-LABEL: define void @depth(
; CHECK-NOT: !shunt
; CHECK: ret void
define void @depth(ptr %h) {
  %a = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @.ours, ptr @.file, i32 1, ptr null)
  %b = load ptr, ptr %a
  %c = load ptr, ptr %b
  call void %c()
  call void @take(ptr %b)
  %e = getelementptr i8, ptr %b, i64 8
  call void %e()
  ret void
}

; CHECK-LABEL: define void @first(
; CHECK: call void %b(), !shunt.dispatch [[TC:![0-9]+]]
; CHECK: call void %b(), !shunt.dispatch [[XDP:![0-9]+]]
; CHECK: [[TC]] = !{!"tc"}
; CHECK: [[XDP]] = !{!"xdp"}
define void @first(ptr %h) {
  %a = call ptr @llvm.ptr.annotation.p0.p0(ptr %h, ptr @.ours, ptr @.file, i32 1, ptr null)
  %b = load ptr, ptr %a
  call void %b(), !shunt.dispatch !0
  call void %b()
  ret void
}

!0 = !{!"tc"}
