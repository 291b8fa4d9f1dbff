; The hot target first, by value profile or by the counts of the mark, with branch weights; what the profile knows besides stays on the
; indirect call. Names are hashed as LLVM's profiles do it, those of local functions with their file.
; RUN: %shunt-opt --passes=shunt-targets %s | %FileCheck %s
source_filename = "some/file.c"
target triple = "x86_64-unknown-linux-gnu"

declare void @hot()
declare void @cold()
declare void @never()
define internal void @local() {
  ret void
}
define internal void @renamed() !PGOFuncName !8 {
  ret void
}

; CHECK-LABEL: define void @value_profile(
; CHECK: icmp eq ptr %f, @hot
; CHECK-NEXT: br i1 {{.*}}!prof [[W1:![0-9]+]]
; CHECK: call void @hot(), !prof [[C1:![0-9]+]]
; CHECK: icmp eq ptr %f, @cold
; CHECK-NEXT: br i1 {{.*}}!prof [[W2:![0-9]+]]
; CHECK: icmp eq ptr %f, @never
; CHECK-NEXT: br i1 {{.*}}!prof [[W3:![0-9]+]]
; CHECK: call void @never(){{$}}
; CHECK: call void %f(), !prof [[REST:![0-9]+]]
define void @value_profile(ptr %f) {
  call void %f(), !shunt.targets !0, !prof !1
  ret void
}

; CHECK-LABEL: define void @all_known(
; CHECK: icmp eq ptr %f, @hot
; CHECK: call void %f(){{$}}
define void @all_known(ptr %f) {
  call void %f(), !shunt.targets !0, !prof !2
  ret void
}

; CHECK-LABEL: define void @local_names(
; CHECK: icmp eq ptr %f, @renamed
; CHECK: icmp eq ptr %f, @local
; CHECK: icmp eq ptr %f, @hot
define void @local_names(ptr %f) {
  call void %f(), !shunt.targets !3, !prof !4
  ret void
}

; CHECK-LABEL: define void @counts(
; CHECK: icmp eq ptr %f, @never
; CHECK-NEXT: br i1 {{.*}}!prof [[W4:![0-9]+]]
; CHECK: icmp eq ptr %f, @cold
; CHECK: icmp eq ptr %f, @hot
define void @counts(ptr %f) {
  call void %f(), !shunt.targets !5
  ret void
}

; Without a profile the order is the mark's. A profile of something else says nothing.
; CHECK-LABEL: define void @unprofiled(
; CHECK: icmp eq ptr %f, @cold
; CHECK-NEXT: br i1 %{{[0-9]+}}, label %{{[0-9]+}}, label %{{[0-9]+$}}
; CHECK: icmp eq ptr %f, @hot
; CHECK: call void %f(), !prof [[OTHER:![0-9]+]]
define void @unprofiled(ptr %f) {
  call void %f(), !shunt.targets !6, !prof !7
  ret void
}

; CHECK-DAG: [[W1]] = !{!"branch_weights", i32 700, i32 300}
; CHECK-DAG: [[C1]] = !{!"branch_weights", i32 700}
; CHECK-DAG: [[W2]] = !{!"branch_weights", i32 200, i32 100}
; CHECK-DAG: [[W3]] = !{!"branch_weights", i32 0, i32 100}
; CHECK-DAG: [[REST]] = !{!"VP", i32 0, i64 100, i64 42, i64 60}
; CHECK-DAG: [[W4]] = !{!"branch_weights", i32 -1794967296, i32 7}
; CHECK-DAG: [[OTHER]] = !{!"branch_weights", i32 55}
!0 = !{ptr @never, ptr @cold, ptr @hot}
!1 = !{!"VP", i32 0, i64 1000, i64 -8269091651996404185, i64 700, i64 -6778568560291945099, i64 200, i64 42, i64 60}
!2 = !{!"VP", i32 0, i64 1000, i64 -8269091651996404185, i64 1000}
!3 = !{ptr @hot, ptr @local, ptr @renamed}
!4 = !{!"VP", i32 0, i64 30, i64 2576920705599282539, i64 10, i64 359677967991532861, i64 20}
!5 = !{ptr @hot, ptr @cold, i64 15, ptr @never, i64 5000000000}
!6 = !{ptr @cold, ptr @hot}
!7 = !{!"branch_weights", i32 55}
!8 = !{!"what/it/was.c;before"}
