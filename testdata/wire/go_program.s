# A program that probes take for one of Go with crypto/tls: a table of functions, functions that
# begin and return as those of Go do, a goroutine in r14, arguments in rax, rbx and rcx. It answers
# requests of HTTP on its standard input, without TLS: what a probe reads at the functions is what
# the socket carries. Without Go, and in a few hundred bytes.
#
#   as -o go_program.o go_program.s
#   ld -s -z noseparate-code --build-id=none -o go_program go_program.o

.intel_syntax noprefix

# The start of a function: compares the stack, and calls \name if it is too small.
.macro begin name
    cmp rsp, [r14 + 16]
    jbe 9f
    push rbp
    mov rbp, rsp
.endm
.macro finish name
9:  call grow
    jmp \name
    .balign 32, 0xcc
.endm

.text
code:
# crypto/tls.(*Conn).Read: rax connection, rbx buffer, rcx its size; returns rax bytes, rbx error.
read:
    begin
    mov rsi, rbx
    mov rdx, rcx
    xor edi, edi
    xor eax, eax
    syscall
    test rax, rax
    jg 1f
    xor eax, eax
    lea rbx, [rip + code]
    pop rbp
    ret
1:  xor ebx, ebx
    pop rbp
    ret
    finish read

# crypto/tls.(*Conn).Write: as above.
write:
    begin
    mov rsi, rbx
    mov rdx, rcx
    xor edi, edi
    mov eax, 1
    syscall
    xor ebx, ebx
    pop rbp
    ret
    finish write

# crypto/tls.(*Conn).serverHandshake: moves no bytes.
handshake:
    begin
    xor eax, eax
    pop rbp
    ret
    finish handshake

# crypto/tls.(*Conn).Close
close:
    begin
    xor eax, eax
    pop rbp
    ret
    finish close

grow:
    ud2
    .balign 32, 0xcc

.globl _start
_start:
    mov rbp, rsp
    sub rsp, 0x4000
    # The goroutine: start and end of its stack, and the limit.
    lea r14, [rsp + 0x100]
    lea rax, [rsp - 0x10000]
    mov [r14], rax
    mov [r14 + 8], rbp
    mov [r14 + 16], rax
    lea rax, [r14 + 0x100]
    call handshake
1:  lea rax, [r14 + 0x100]
    # A buffer on the stack.
    lea rbx, [r14 + 0x200]
    mov ecx, 4096
    call read
    test rax, rax
    jz 2f
    lea rax, [r14 + 0x100]
    lea rbx, [rip + response]
    mov ecx, offset response_end - response
    call write
    jmp 1b
2:  lea rax, [r14 + 0x100]
    call close
    mov eax, 60
    xor edi, edi
    syscall
end:

.section .gopclntab, "a"
table:
    .long 0xfffffff1
    .byte 0, 0, 1, 8
    .quad 5, 0
    # The address of the code.
    .quad code
    .quad names - table, names_end - table, 0, 0, entries - table
names:
    .byte 0
name_read:      .asciz "crypto/tls.(*Conn).Read"
name_write:     .asciz "crypto/tls.(*Conn).Write"
name_handshake: .asciz "crypto/tls.(*Conn).serverHandshake"
name_close:     .asciz "crypto/tls.(*Conn).Close"
name_start:     .asciz "_start"
names_end:
    .balign 8
entries:
    .long read - code, record_read - entries
    .long write - code, record_write - entries
    .long handshake - code, record_handshake - entries
    .long close - code, record_close - entries
    .long grow - code, record_start - entries
    .long end - code
record_read:      .long read - code, name_read - names, 0, 0
record_write:     .long write - code, name_write - names, 0, 0
record_handshake: .long handshake - code, name_handshake - names, 0, 0
record_close:     .long close - code, name_close - names, 0, 0
record_start:     .long grow - code, name_start - names, 0, 0

.section .go.module, "a"
    .skip 176
    .quad 0

.section .rodata
response:
    .ascii "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea"
response_end:
