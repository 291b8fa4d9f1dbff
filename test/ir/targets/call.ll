; A call with known targets becomes compares, direct calls and the indirect call for the rest; all else of the call is on every copy.
; RUN: %shunt-opt --passes=shunt-targets --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-targets - | %FileCheck %s
; RUN: %shunt-opt --passes=shunt-targets --stats %t.ll -o %t.again.ll 2>&1 | %FileCheck %s --check-prefix=AGAIN
; RUN: sed -e 's/;.*//' %t.ll > %t.1 && sed -e 's/;.*//' %t.again.ll > %t.2 && cmp %t.1 %t.2
; LLVM inlines through it.
; RUN: %shunt-opt --passes=shunt-targets --llvm-after='default<O2>' %s | %FileCheck %s --check-prefix=INLINED
; COUNTS: static_calls 13
; COUNTS: missed 0
; AGAIN: static_calls 0
; AGAIN: missed 0
target triple = "x86_64-unknown-linux-gnu"

declare i32 @__gxx_personality_v0(...)
define internal i32 @a(ptr %ctx) {
  ret i32 7
}
declare i32 @b(ptr)
@c = alias i32 (ptr), ptr @a
declare fastcc { i64, <4 x i32> } @wide(ptr byval({ i64, i64 }), i32 signext)
declare void @log(ptr, ...)

; CHECK-LABEL: define i32 @plain(
; CHECK-NEXT: entry:
; CHECK-NEXT: [[IS_A:%[0-9]+]] = icmp eq ptr %f, @a
; CHECK-NEXT: br i1 [[IS_A]], label %[[A:[0-9]+]], label %[[NOT_A:[0-9]+]]
; CHECK: [[A]]:
; CHECK-NEXT: [[RA:%[0-9]+]] = call i32 @a(ptr %ctx)
; CHECK-NEXT: br label %[[JOIN:[0-9]+]]
; CHECK: [[NOT_A]]:
; CHECK-NEXT: [[IS_B:%[0-9]+]] = icmp eq ptr %f, @b
; CHECK-NEXT: br i1 [[IS_B]], label %[[B:[0-9]+]], label %[[MISS:[0-9]+]]
; CHECK: [[B]]:
; CHECK-NEXT: [[RB:%[0-9]+]] = call i32 @b(ptr %ctx)
; CHECK-NEXT: br label %[[JOIN]]
; CHECK: [[MISS]]:
; CHECK-NEXT: [[RM:%[0-9]+]] = call i32 %f(ptr %ctx)
; CHECK-NEXT: br label %[[JOIN]]
; CHECK: [[JOIN]]:
; CHECK-NEXT: %r = phi i32 [ [[RM]], %[[MISS]] ], [ [[RA]], %[[A]] ], [ [[RB]], %[[B]] ]
; CHECK-NEXT: %s = add i32 %r, 1
; INLINED-LABEL: define i32 @plain(
; INLINED-NOT: call i32 @a(
; INLINED: ret i32
define i32 @plain(ptr %ctx, ptr %f) {
entry:
  %r = call i32 %f(ptr %ctx), !shunt.targets !0
  %s = add i32 %r, 1
  ret i32 %s
}

; CHECK-LABEL: define void @everything(
; CHECK: tail call fastcc { i64, <4 x i32> } @wide(ptr noundef byval({ i64, i64 }) align 8 %in, i32 signext %n) #[[SITE:[0-9]+]] [ "deopt"(i32 1) ], !srcloc ![[SRC:[0-9]+]]
; CHECK: tail call fastcc { i64, <4 x i32> } %f(ptr noundef byval({ i64, i64 }) align 8 %in, i32 signext %n) #[[SITE]] [ "deopt"(i32 1) ], !srcloc ![[SRC]]
; CHECK: phi { i64, <4 x i32> }
define void @everything(ptr %in, i32 %n, ptr %f, ptr %out) {
  %r = tail call fastcc { i64, <4 x i32> } %f(ptr noundef byval({ i64, i64 }) align 8 %in, i32 signext %n) nounwind "site"="x" [ "deopt"(i32 1) ], !shunt.targets !1, !srcloc !9
  store { i64, <4 x i32> } %r, ptr %out
  ret void
}

; CHECK-LABEL: define void @variadic(
; CHECK: notail call void (ptr, ...) @log(ptr %f, i32 signext 1, double 2.000000e+00)
define void @variadic(ptr %f) {
  notail call void (ptr, ...) %f(ptr %f, i32 signext 1, double 2.0), !shunt.targets !2
  ret void
}

; Each copy returns by itself; the indirect one may still be a dispatch.
; CHECK-LABEL: define i32 @musttail(
; CHECK: [[RA:%[0-9]+]] = musttail call i32 @a(ptr %f)
; CHECK-NEXT: ret i32 [[RA]]
; CHECK: %r = musttail call i32 %f(ptr %f), !shunt.dispatch
; CHECK-NEXT: ret i32 %r
define i32 @musttail(ptr %f) {
  %r = musttail call i32 %f(ptr %f), !shunt.targets !3, !shunt.dispatch !8
  ret i32 %r
}

; CHECK-LABEL: define i32 @invoked(
; CHECK: invoke i32 @a(ptr %ctx)
; CHECK-NEXT: to label %[[JOIN:[0-9]+]] unwind label %bad
; CHECK: invoke i32 %f(ptr %ctx)
; CHECK-NEXT: to label %[[JOIN]] unwind label %bad
; CHECK: [[JOIN]]:
; CHECK-NEXT: %r = phi i32
; CHECK-NEXT: br label %ok
; CHECK: %v = phi i32 [ %r, %[[JOIN]] ]
; CHECK: %w = phi i32 [ %k, %{{[0-9]+}} ], [ %k, %{{[0-9]+}} ]
define i32 @invoked(ptr %ctx, ptr %f) personality ptr @__gxx_personality_v0 {
entry:
  %k = load i32, ptr %ctx
  %r = invoke i32 %f(ptr %ctx) to label %ok unwind label %bad, !shunt.targets !3
ok:
  %v = phi i32 [ %r, %entry ]
  ret i32 %v
bad:
  %w = phi i32 [ %k, %entry ]
  %pad = landingpad { ptr, i32 } cleanup
  ret i32 %w
}

; In a landing pad, whose predecessors unwind to the upper half.
; CHECK-LABEL: define void @in_pad(
; CHECK: unwind label %bad
; CHECK: bad:
; CHECK-NEXT: %pad = landingpad
; CHECK: icmp eq ptr %f, @a
define void @in_pad(ptr %ctx, ptr %f) personality ptr @__gxx_personality_v0 {
  invoke void @log(ptr %ctx) to label %ok unwind label %bad
ok:
  ret void
bad:
  %pad = landingpad { ptr, i32 } cleanup
  call i32 %f(ptr %ctx), !shunt.targets !3
  resume { ptr, i32 } %pad
}

; Two in one block of a loop that is its own predecessor.
; CHECK-LABEL: define i32 @loop(
; CHECK: loop:
; CHECK-NEXT: %p = phi i32 [ 0, %entry ], [ %y, %[[LAST:[0-9]+]] ]
; CHECK: %r = phi i32
; CHECK: [[LAST]]:
; CHECK-NEXT: %s = phi i32
; CHECK: br i1 %more, label %loop, label %exit
; CHECK: %q = phi i32 [ %y, %[[LAST]] ]
define i32 @loop(ptr %ctx, ptr %f, i1 %more) {
entry:
  br label %loop
loop:
  %p = phi i32 [ 0, %entry ], [ %y, %loop ]
  %r = call i32 %f(ptr %ctx), !shunt.targets !0
  %s = call i32 %f(ptr %ctx), !shunt.targets !3
  %x = add i32 %r, %s
  %y = add i32 %x, %p
  br i1 %more, label %loop, label %exit
exit:
  %q = phi i32 [ %y, %loop ]
  ret i32 %q
}

; Memory of the entry block stays there; a result that nobody uses has no phi.
; CHECK-LABEL: define void @memory(
; CHECK-NEXT: %before = alloca i32
; CHECK-NEXT: %after = alloca i64
; CHECK-NEXT: icmp eq
; CHECK-NOT: phi
; CHECK: store ptr %before
define void @memory(ptr %f) {
  %before = alloca i32
  call i32 %f(ptr %before), !shunt.targets !3
  %after = alloca i64
  store ptr %before, ptr %after
  ret void
}

; Debug locations and variables: the variable is set where it was, before the compares.
; CHECK-LABEL: define i32 @located(
; CHECK: #dbg_value(ptr %f,
; CHECK-NEXT: icmp eq ptr %f, @a, !dbg ![[LOC:[0-9]+]]
; CHECK: call i32 @a(ptr %ctx), !dbg ![[LOC]]
; CHECK: call i32 %f(ptr %ctx), !dbg ![[LOC]]
; CHECK: %r = phi i32
; CHECK-NEXT: #dbg_value(i32 %r,
define i32 @located(ptr %ctx, ptr %f) !dbg !15 {
    #dbg_value(ptr %f, !17, !DIExpression(), !16)
  %r = call i32 %f(ptr %ctx), !dbg !16, !shunt.targets !3
    #dbg_value(i32 %r, !18, !DIExpression(), !16)
  ret i32 %r, !dbg !16
}

; A block whose address is taken is the upper half.
; CHECK-LABEL: define void @addressed(
; CHECK: blockaddress(@addressed, %there)
; CHECK: there:
; CHECK-NEXT: icmp eq
define void @addressed(ptr %f, ptr %at) {
  store ptr blockaddress(@addressed, %there), ptr %at
  br label %there
there:
  call i32 %f(ptr %at), !shunt.targets !3
  ret void
}

; A target that is named twice or gone is tested once or not; a call that LLVM made direct only loses its mark.
; CHECK-LABEL: define void @odd(
; CHECK: icmp eq ptr %f, @a
; CHECK-NOT: icmp eq ptr %f, @a
; CHECK: call i32 %f(
; CHECK: icmp eq ptr %f, @c
; CHECK: call i32 @c(
; CHECK: call i32 @a(ptr %ctx)
; CHECK-NEXT: call i32 %f(ptr %ctx)
; CHECK-NEXT: ret void
define void @odd(ptr %ctx, ptr %f) {
  call i32 %f(ptr %ctx), !shunt.targets !4
  call i32 %f(ptr %ctx), !shunt.targets !5
  call i32 @a(ptr %ctx), !shunt.targets !0
  call i32 %f(ptr %ctx), !shunt.targets !6
  ret void
}

; CHECK-DAG: attributes #[[SITE]] = { nounwind "site"="x" }
; CHECK-DAG: ![[SRC]] = !{i32 9}
; CHECK-DAG: ![[LOC]] = !DILocation(line: 7
!0 = !{ptr @a, ptr @b}
!1 = !{ptr @wide}
!2 = !{ptr @log}
!3 = !{ptr @a}
!4 = !{ptr @a, null, ptr @a}
!5 = !{ptr @c}
!6 = !{}
!8 = !{!"xdp"}
!9 = !{i32 9}
!llvm.dbg.cu = !{!10}
!llvm.module.flags = !{!12}
!10 = distinct !DICompileUnit(language: DW_LANG_C11, file: !11, emissionKind: FullDebug)
!11 = !DIFile(filename: "prog.c", directory: "/src")
!12 = !{i32 2, !"Debug Info Version", i32 3}
!13 = !DISubroutineType(types: !14)
!14 = !{}
!15 = distinct !DISubprogram(name: "located", file: !11, line: 6, type: !13, unit: !10, spFlags: DISPFlagDefinition)
!16 = !DILocation(line: 7, column: 9, scope: !15)
!17 = !DILocalVariable(name: "f", arg: 2, scope: !15, file: !11, line: 6, type: !19)
!18 = !DILocalVariable(name: "r", scope: !15, file: !11, line: 7, type: !19)
!19 = !DIBasicType(name: "long", size: 64, encoding: DW_ATE_signed)
