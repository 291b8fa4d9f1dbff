; Only under conventions where LLVM gives nest the stub's register; the stub is declared with the call's convention.
; RUN: %shunt-opt --passes=shunt-dispatch --stats %s 2>%t.x86 | %FileCheck %s --check-prefixes=BOTH,X86
; RUN: sed -e 's/x86_64-/aarch64-/' %s | %shunt-opt --passes=shunt-dispatch --stats - 2>%t.arm | %FileCheck %s --check-prefixes=BOTH,ARM
; RUN: %FileCheck %s --check-prefix=X86-COUNT < %t.x86
; RUN: %FileCheck %s --check-prefix=ARM-COUNT < %t.arm
; In machine code, too: ten calls with r10, nine with x18.
; RUN: %shunt-opt --passes=shunt-dispatch %s | sed -e '/call .* .p(i32 1)/d' | %llvm/llc -O2 | %FileCheck %s --check-prefix=R10
; RUN: sed -e 's/x86_64-/aarch64-/' %s | %shunt-opt --passes=shunt-dispatch - | sed -e '/call .* .p(i32 1)/d' | %llvm/llc -O2 | %FileCheck %s --check-prefix=X18
; R10-COUNT-10: , %r10
; X18-COUNT-9: mov x18,
; X86-COUNT: dispatches 10
; X86-COUNT: missed 6
; ARM-COUNT: dispatches 9
; ARM-COUNT: missed 7
target triple = "x86_64-unknown-linux-gnu"

; BOTH: call fastcc void @shunt_stub.fast(i32 1, ptr nest %p)
; X86: call coldcc void @shunt_stub.cold(i32 1, ptr nest %p)
; ARM: call coldcc void %p(i32 1), !shunt.dispatch
; BOTH: call preserve_mostcc void @shunt_stub.most(i32 1, ptr nest %p)
; BOTH: call preserve_allcc void @shunt_stub.all(i32 1, ptr nest %p)
; BOTH: call swiftcc void @shunt_stub.swift(i32 1, ptr nest %p)
; BOTH: call tailcc void @shunt_stub.tail(i32 1, ptr nest %p)
; BOTH: call swifttailcc void @shunt_stub.swifttail(i32 1, ptr nest %p)
; X86: call x86_64_sysvcc void @shunt_stub.sysv(i32 1, ptr nest %p)
; ARM: call x86_64_sysvcc void %p(i32 1), !shunt.dispatch
; X86: call win64cc void @shunt_stub.win64(i32 1, ptr nest %p)
; ARM: call win64cc void %p(i32 1), !shunt.dispatch
; X86: call aarch64_vector_pcs void %p(i32 1), !shunt.dispatch
; ARM: call aarch64_vector_pcs void @shunt_stub.vector(i32 1, ptr nest %p)
; X86: call aarch64_sve_vector_pcs void %p(i32 1), !shunt.dispatch
; ARM: call aarch64_sve_vector_pcs void @shunt_stub.sve(i32 1, ptr nest %p)
; BOTH: call ghccc void %p(i32 1), !shunt.dispatch
; BOTH: call anyregcc void %p(i32 1), !shunt.dispatch
; BOTH: call x86_vectorcallcc void %p(i32 1), !shunt.dispatch
; LLVM takes a call that disagrees with its function for unreachable code, so the name belongs to its first convention.
; BOTH: call void %p(i32 1), !shunt.dispatch
define void @call0(ptr %p) {
  call fastcc void %p(i32 1), !shunt.dispatch !0
  ret void
}
define void @call1(ptr %p) {
  call coldcc void %p(i32 1), !shunt.dispatch !1
  ret void
}
define void @call2(ptr %p) {
  call preserve_mostcc void %p(i32 1), !shunt.dispatch !2
  ret void
}
define void @call3(ptr %p) {
  call preserve_allcc void %p(i32 1), !shunt.dispatch !3
  ret void
}
define void @call4(ptr %p) {
  call swiftcc void %p(i32 1), !shunt.dispatch !4
  ret void
}
define void @call5(ptr %p) {
  call tailcc void %p(i32 1), !shunt.dispatch !5
  ret void
}
define void @call6(ptr %p) {
  call swifttailcc void %p(i32 1), !shunt.dispatch !6
  ret void
}
define void @call7(ptr %p) {
  call x86_64_sysvcc void %p(i32 1), !shunt.dispatch !7
  ret void
}
define void @call8(ptr %p) {
  call win64cc void %p(i32 1), !shunt.dispatch !8
  ret void
}
define void @call9(ptr %p) {
  call aarch64_vector_pcs void %p(i32 1), !shunt.dispatch !9
  ret void
}
define void @call10(ptr %p) {
  call aarch64_sve_vector_pcs void %p(i32 1), !shunt.dispatch !10
  ret void
}
define void @call11(ptr %p) {
  call ghccc void %p(i32 1), !shunt.dispatch !11
  ret void
}
define void @call12(ptr %p) {
  call anyregcc void %p(i32 1), !shunt.dispatch !11
  ret void
}
define void @call13(ptr %p) {
  call x86_vectorcallcc void %p(i32 1), !shunt.dispatch !11
  ret void
}
define void @call14(ptr %p) {
  call void %p(i32 1), !shunt.dispatch !0
  ret void
}

; BOTH: musttail call tailcc void @shunt_stub.tail(i32 %n, ptr nest %p)
define tailcc void @tail(i32 %n, ptr %p) {
  musttail call tailcc void %p(i32 %n), !shunt.dispatch !5
  ret void
}

; BOTH: declare hidden fastcc void @shunt_stub.fast(i32, ptr nest)
; BOTH: declare hidden swifttailcc void @shunt_stub.swifttail(i32, ptr nest)

!0 = !{!"fast"}
!1 = !{!"cold"}
!2 = !{!"most"}
!3 = !{!"all"}
!4 = !{!"swift"}
!5 = !{!"tail"}
!6 = !{!"swifttail"}
!7 = !{!"sysv"}
!8 = !{!"win64"}
!9 = !{!"vector"}
!10 = !{!"sve"}
!11 = !{!"none"}
