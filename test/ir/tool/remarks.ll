; Remarks are LLVM's YAML: its own reader takes them.
; RUN: %shunt-opt --remarks=%t.yaml %s -o %t.ll
; RUN: %FileCheck %s < %t.yaml
; RUN: %llvm/llvm-remarkutil yaml2bitstream %t.yaml -o %t.bits && %llvm/llvm-remarkutil bitstream2yaml %t.bits | %FileCheck %s --check-prefix=BACK
target triple = "x86_64-unknown-linux-gnu"

; CHECK: --- !Passed
; CHECK-NEXT: Pass:            shunt-dispatch
; CHECK-NEXT: Name:            Dispatched
; CHECK-NEXT: DebugLoc:        { File: '/src/it''s.c', Line: 7, Column: 9 }
; CHECK-NEXT: Function:        'loc''d'
; CHECK-NEXT: Args:
; CHECK-NEXT:   - Callee:          'xdp'
; CHECK-NEXT:   - String:          ': '
; CHECK-NEXT:   - Reason:          'indirect call became a direct call of ''shunt_stub.xdp'''
; CHECK-NEXT: ...
; CHECK-NEXT: --- !Missed
; CHECK-NEXT: Pass:            shunt-dispatch
; CHECK-NEXT: Name:            DirectCall
; CHECK-NEXT: Function:        "odd\x0A\"name\\"
; BACK: Function: {{.*}}loc
; BACK: DirectCall
define i32 @"loc'd"(ptr %ctx, ptr %prog) !dbg !15 {
  %r = call i32 %prog(ptr %ctx), !dbg !16, !shunt.dispatch !0
  ret i32 %r
}

define i32 @"odd\0A\22name\5C"(ptr %ctx) {
  %r = call i32 @"loc'd"(ptr %ctx, ptr %ctx), !shunt.dispatch !0
  ret i32 %r
}

!0 = !{!"xdp"}
!llvm.dbg.cu = !{!10}
!llvm.module.flags = !{!12}
!10 = distinct !DICompileUnit(language: DW_LANG_C11, file: !11, emissionKind: FullDebug)
!11 = !DIFile(filename: "it's.c", directory: "/src")
!12 = !{i32 2, !"Debug Info Version", i32 3}
!13 = !DISubroutineType(types: !14)
!14 = !{}
!15 = distinct !DISubprogram(name: "located", file: !11, line: 6, type: !13, unit: !10, spFlags: DISPFlagDefinition)
!16 = !DILocation(line: 7, column: 9, scope: !15)
