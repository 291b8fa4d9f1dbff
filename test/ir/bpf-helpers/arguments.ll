; Registers are 64 bits wide: pointers and integers are converted both ways, results extended, surplus arguments dropped.
; RUN: %shunt-opt --passes=shunt-bpf-helpers --remarks=%t.yaml %s -o %t.ll && %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=MISSED < %t.yaml
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-bpf-helpers - | %FileCheck %s
target triple = "x86_64-unknown-linux-gnu"

@map = external global i8
@counter = external constant i64, section ".ksyms"
declare i64 @_bpf_helper_ext_0001(i64, i64, i64, i64, i64)
declare i64 @_bpf_helper_ext_0002(i64, i64, i64, i64, i64)
declare i64 @_bpf_helper_ext_0008(i64, i64, i64, i64, i64)

; CHECK-LABEL: define i64 @registers(
; CHECK-NEXT: [[KEY:%.*]] = inttoptr i64 %key to ptr
; CHECK-NEXT: [[V:%.*]] = call ptr @shunt_map_lookup(ptr @map, ptr [[KEY]])
; CHECK-NEXT: ptrtoint ptr [[V]] to i64
; CHECK: [[RC:%.*]] = call i32 @shunt_map_update(ptr @map, ptr {{.*}}, ptr {{.*}}, i64 2)
; CHECK-NEXT: sext i32 [[RC]] to i64
; CHECK: [[CPU:%.*]] = call i32 @shunt_cpu_id()
; CHECK-NEXT: zext i32 [[CPU]] to i64
define i64 @registers(i64 %key) {
  %v = call i64 @_bpf_helper_ext_0001(i64 ptrtoint (ptr @map to i64), i64 %key, i64 undef, i64 undef, i64 undef)
  %rc = call i64 @_bpf_helper_ext_0002(i64 ptrtoint (ptr @map to i64), i64 %key, i64 %v, i64 2, i64 undef)
  %cpu = call i64 @_bpf_helper_ext_0008(i64 0, i64 0, i64 0, i64 0, i64 0)
  %s = add i64 %rc, %cpu
  ret i64 %s
}

; CHECK-LABEL: define void @percpu(
; CHECK-NEXT: call ptr @shunt_percpu_of(ptr @counter, i32 %cpu)
; CHECK-NEXT: call ptr @shunt_percpu_this(ptr @counter)
; CHECK-NEXT: [[CPU:%.*]] = trunc i64 %wide to i32
; CHECK-NEXT: call ptr @shunt_map_lookup_of(ptr @map, ptr %key, i32 [[CPU]])
define void @percpu(ptr %key, i32 %cpu, i64 %wide) {
  call ptr inttoptr (i64 153 to ptr)(ptr @counter, i32 %cpu)
  call ptr inttoptr (i64 154 to ptr)(ptr @counter)
  call ptr inttoptr (i64 195 to ptr)(ptr @map, ptr %key, i64 %wide)
  ret void
}

; CHECK-LABEL: define ptr @other_helpers(
; CHECK: [[P:%.*]] = ptrtoint ptr %ctx to i64
; CHECK-NEXT: [[Z:%.*]] = zext i32 %n to i64
; CHECK-NEXT: [[S:%.*]] = sext i32 %n to i64
; CHECK-NEXT: [[R:%.*]] = call i64 @_bpf_helper_ext_0026(i64 [[P]], i64 [[Z]], i64 [[S]], i64 0, i64 0), !dbg
; CHECK-NEXT: inttoptr i64 [[R]] to ptr
; CHECK: [[R32:%.*]] = call i64 @_bpf_helper_ext_0044(
; CHECK-NEXT: trunc i64 [[R32]] to i32
; CHECK: call i64 @_bpf_helper_ext_0012(
define ptr @other_helpers(ptr %ctx, i32 %n) !dbg !5 {
  %r = call ptr inttoptr (i64 26 to ptr)(ptr %ctx, i32 %n, i32 signext %n), !dbg !6
  %i = call i32 inttoptr (i64 44 to ptr)(ptr %ctx, i32 %n), !dbg !6
  call void inttoptr (i64 12 to ptr)(ptr %ctx), !dbg !6
  ret ptr %r
}

; CHECK-LABEL: define void @left(
; CHECK-NEXT: call ptr inttoptr (i64 1 to ptr)(ptr @map)
; CHECK-NEXT: call i64 inttoptr (i64 5 to ptr)(double 0.000000e+00)
; CHECK-NEXT: call i64 inttoptr (i64 5 to ptr)(i64 1, i64 2, i64 3, i64 4, i64 5, i64 6)
; CHECK-NEXT: call fastcc i64 inttoptr (i64 5 to ptr)()
; CHECK-NEXT: call i128 inttoptr (i64 8 to ptr)()
; MISSED-COUNT-5: Name: UnexpectedSignature
define void @left() {
  call ptr inttoptr (i64 1 to ptr)(ptr @map)
  call i64 inttoptr (i64 5 to ptr)(double 0.0)
  call i64 inttoptr (i64 5 to ptr)(i64 1, i64 2, i64 3, i64 4, i64 5, i64 6)
  call fastcc i64 inttoptr (i64 5 to ptr)()
  call i128 inttoptr (i64 8 to ptr)()
  ret void
}
; CHECK: declare i64 @_bpf_helper_ext_0026(i64, i64, i64, i64, i64)
; MISSED-NOT: Missed

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "prog.c", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !DISubroutineType(types: !4)
!4 = !{}
!5 = distinct !DISubprogram(name: "other_helpers", file: !1, line: 6, type: !3, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DILocation(line: 7, column: 9, scope: !5)
