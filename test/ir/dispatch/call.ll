; A marked indirect call becomes a direct call of the stub, pointer in the nest register; all else of the call stays.
; RUN: %shunt-opt --passes=shunt-dispatch --stats %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-dispatch - | %FileCheck %s
; RUN: %shunt-opt --passes=shunt-dispatch --stats %t.ll -o %t.again.ll 2>&1 | %FileCheck %s --check-prefix=AGAIN
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
; COUNTS: dispatches 11
; COUNTS: missed 0
; AGAIN: dispatches 0
; AGAIN: missed 0
target triple = "x86_64-unknown-linux-gnu"

declare i32 @__gxx_personality_v0(...)

; CHECK: @page = global ptr @shunt_stub.here
; CHECK-LABEL: define i32 @plain(
; CHECK-NEXT: %verdict = call i32 @shunt_stub.xdp(ptr %ctx, ptr nest %prog)
; CHECK-NEXT: ret i32 %verdict
define i32 @plain(ptr %ctx, ptr %prog) {
  %verdict = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %verdict
}

; Argument, result and call attributes; metadata but the mark; a tail call; a bundle.
; CHECK-LABEL: define i64 @everything(
; CHECK-NEXT: %r = tail call zeroext i64 @shunt_stub.filter(ptr noundef nonnull align 8 dereferenceable(16) %ctx, i32 signext %n, ptr nest %prog) #[[SITE:[0-9]+]] [ "deopt"(i32 1, ptr %ctx) ], !prof ![[PROF:[0-9]+]], !srcloc ![[SRC:[0-9]+]]
; CHECK-NOT: shunt.dispatch
define i64 @everything(ptr %ctx, i32 %n, ptr %prog) {
  %r = tail call zeroext i64 %prog(ptr noundef nonnull align 8 dereferenceable(16) %ctx, i32 signext %n) nounwind memory(argmem: read) "site"="x" [ "deopt"(i32 1, ptr %ctx) ], !prof !2, !shunt.dispatch !1, !srcloc !3
  ret i64 %r
}

; CHECK-LABEL: define void @memory_arguments(
; CHECK: call void @shunt_stub.big(ptr sret({ i64, i64, i64 }) align 8 %out, ptr byval({ i64, i64 }) align 8 %in, i32 inreg 4, ptr nest %prog)
define void @memory_arguments(ptr %out, ptr %in, ptr %prog) {
  call void %prog(ptr sret({ i64, i64, i64 }) align 8 %out, ptr byval({ i64, i64 }) align 8 %in, i32 inreg 4), !shunt.dispatch !4
  ret void
}

; After the last fixed parameter; the variable arguments' attributes move along.
; CHECK-LABEL: define i32 @variadic(
; CHECK: call i32 (ptr, ptr, ...) @shunt_stub.log(ptr nonnull %format, ptr nest %prog, i32 signext %a, double 1.000000e+00, ptr noundef %format)
define i32 @variadic(ptr %format, i32 %a, ptr %prog) {
  %r = call i32 (ptr, ...) %prog(ptr nonnull %format, i32 signext %a, double 1.0, ptr noundef %format), !shunt.dispatch !5
  ret i32 %r
}

; CHECK-LABEL: define float @fast_math(
; CHECK: notail call nnan contract float @shunt_stub.fp(float %x, ptr nest %prog), !fpmath
define float @fast_math(float %x, ptr %prog) {
  %r = notail call nnan contract float %prog(float %x), !fpmath !6, !shunt.dispatch !7
  ret float %r
}

; CHECK-LABEL: define i32 @invoked(
; CHECK: %r = invoke i32 @shunt_stub.xdp(ptr %ctx, ptr nest %prog)
; CHECK-NEXT: to label %ok unwind label %bad
; CHECK: phi i32 [ %r, %entry ]
; CHECK: phi i32 [ 1, %entry ]
define i32 @invoked(ptr %ctx, ptr %prog) personality ptr @__gxx_personality_v0 {
entry:
  %r = invoke i32 %prog(ptr %ctx) to label %ok unwind label %bad, !shunt.dispatch !0
ok:
  %v = phi i32 [ %r, %entry ]
  ret i32 %v
bad:
  %w = phi i32 [ 1, %entry ]
  %pad = landingpad { ptr, i32 } cleanup
  ret i32 %w
}

; A program at a constant address, as a JIT has it, is still looked up by the tree.
; CHECK-LABEL: define i32 @constant_address(
; CHECK: call i32 @shunt_stub.xdp(ptr %ctx, ptr nest inttoptr (i64 4096000 to ptr))
define i32 @constant_address(ptr %ctx) {
  %r = call i32 inttoptr (i64 4096000 to ptr)(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

; A function that has a static chain itself may pass on another.
; CHECK-LABEL: define i32 @chained(
; CHECK: call i32 @shunt_stub.xdp(ptr %ctx, ptr nest %prog)
define i32 @chained(ptr %ctx, ptr nest %prog) {
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

; Another prototype through the same stub: the symbol forwards what it is given.
; CHECK-LABEL: define i64 @other_prototype(
; CHECK: call i64 @shunt_stub.xdp(ptr %ctx, i64 %n, ptr nest %prog)
define i64 @other_prototype(ptr %ctx, i64 %n, ptr %prog) {
  %r = call i64 %prog(ptr %ctx, i64 %n), !shunt.dispatch !0
  ret i64 %r
}

; The file that defines a dispatcher in C knows its stub as bytes.
; CHECK-LABEL: define i32 @stub_is_bytes(
; CHECK: call i32 @shunt_stub.here(ptr %ctx, ptr nest %prog)
@"shunt_stub.here" = external hidden constant [0 x i8]
@page = global ptr @"shunt_stub.here"
define i32 @stub_is_bytes(ptr %ctx, ptr %prog) {
  %r = call i32 %prog(ptr %ctx), !shunt.dispatch !8
  ret i32 %r
}

; CHECK-LABEL: define i32 @located(
; CHECK: call i32 @shunt_stub.xdp(ptr %ctx, ptr nest %prog), !dbg ![[LOC:[0-9]+]]
define i32 @located(ptr %ctx, ptr %prog) !dbg !15 {
  %r = call i32 %prog(ptr %ctx), !dbg !16, !shunt.dispatch !0
  ret i32 %r
}

; Hidden: a lazily bound PLT entry would overwrite the register.
; CHECK: declare hidden i32 @shunt_stub.xdp(ptr, ptr nest) #[[THUNK:[0-9]+]]
; CHECK: declare hidden i64 @shunt_stub.filter(ptr, i32, ptr nest)
; CHECK: declare hidden i32 @shunt_stub.log(ptr, ptr nest, ...)
; CHECK-DAG: attributes #[[THUNK]] = { "thunk" }
; CHECK-DAG: attributes #[[SITE]] = { nounwind memory(argmem: read) "site"="x" }
; CHECK-DAG: ![[PROF]] = !{!"branch_weights", i32 7}
; CHECK-DAG: ![[SRC]] = !{i32 9}
; CHECK-DAG: ![[LOC]] = !DILocation(line: 7, column: 9

!0 = !{!"xdp"}
!1 = !{!"filter"}
!2 = !{!"branch_weights", i32 7}
!3 = !{i32 9}
!4 = !{!"big"}
!5 = !{!"log"}
!6 = !{float 2.5}
!7 = !{!"fp"}
!8 = !{!"here"}
!llvm.dbg.cu = !{!10}
!llvm.module.flags = !{!12}
!10 = distinct !DICompileUnit(language: DW_LANG_C11, file: !11, emissionKind: FullDebug)
!11 = !DIFile(filename: "prog.c", directory: "/src")
!12 = !{i32 2, !"Debug Info Version", i32 3}
!13 = !DISubroutineType(types: !14)
!14 = !{}
!15 = distinct !DISubprogram(name: "located", file: !11, line: 6, type: !13, unit: !10, spFlags: DISPFlagDefinition)
!16 = !DILocation(line: 7, column: 9, scope: !15)
