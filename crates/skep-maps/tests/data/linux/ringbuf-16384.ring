ring 16384
query 0 -> 0
query 1 -> 16384
query 2 -> 0
query 3 -> 0
query 4 -> 0
query 18446744073709551615 -> 0
take -> nothing
headers -> none
lookup -> error 524
update -> error 524
delete -> error 524
next -> error 524
output 0 0 -> ok
reserve 0 0 submit 0 -> avail 16 at 16
output 1 0 -> ok
reserve 1 0 submit 0 -> avail 48 at 48
output 5 0 -> ok
reserve 5 0 submit 0 -> avail 80 at 80
output 8 0 -> ok
reserve 8 0 submit 0 -> avail 112 at 112
output 9 0 -> ok
output 8 1 -> ok
reserve 8 1 submit 0 -> null
reserve 5 0 submit 1 -> avail 168 at 168
reserve 5 0 discard 1 -> avail 184 at 184
output 8 2 -> ok
reserve 8 2 submit 0 -> null
reserve 5 0 submit 2 -> avail 216 at 216
reserve 5 0 discard 2 -> avail 232 at 232
output 8 3 -> ok
reserve 8 3 submit 0 -> null
reserve 5 0 submit 3 -> avail 264 at 264
reserve 5 0 discard 3 -> avail 280 at 280
output 8 4 -> error 22
reserve 8 4 submit 0 -> null
reserve 5 0 submit 4 -> avail 296 at 296
reserve 5 0 discard 4 -> avail 312 at 312
output 8 5 -> error 22
reserve 8 5 submit 0 -> null
reserve 5 0 submit 5 -> avail 328 at 328
reserve 5 0 discard 5 -> avail 344 at 344
output 8 4294967296 -> error 22
reserve 8 4294967296 submit 0 -> null
reserve 5 0 submit 4294967296 -> avail 360 at 360
reserve 5 0 discard 4294967296 -> avail 376 at 376
output 8 9223372036854775808 -> error 22
reserve 8 9223372036854775808 submit 0 -> null
reserve 5 0 submit 9223372036854775808 -> avail 392 at 392
reserve 5 0 discard 9223372036854775808 -> avail 408 at 408
output 8 18446744073709551615 -> error 22
reserve 8 18446744073709551615 submit 0 -> null
reserve 5 0 submit 18446744073709551615 -> avail 424 at 424
reserve 5 0 discard 18446744073709551615 -> avail 440 at 440
headers -> 00000000 00000000 00000001 00000001 00000005 00000005 00000008 00000008 00000009 00000008 00000005 40000005 00000008 00000005 40000005 00000008 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005 00000005 40000005
query 0 -> 440
query 2 -> 0
query 3 -> 440
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes b2
take -> 1 bytes d1
take -> 5 bytes f0f7fe050c
take -> 5 bytes 0f161d242b
take -> 8 bytes 2e353c434a51585f
take -> 8 bytes 4d545b626970777e
take -> 9 bytes 6c737a81888f969da4
take -> 8 bytes 8b9299a0a7aeb5bc
take -> 5 bytes c9d0d7dee5
take -> 8 bytes 070e151c232a3138
take -> 5 bytes 454c535a61
take -> 8 bytes 838a91989fa6adb4
take -> 5 bytes c1c8cfd6dd
take -> 5 bytes 3d444b5259
take -> 5 bytes b9c0c7ced5
take -> 5 bytes 353c434a51
take -> 5 bytes b1b8bfc6cd
take -> 5 bytes 2d343b4249
query 0 -> 16
query 2 -> 424
query 3 -> 440
output 0 0 -> ok
query 0 -> 24
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 48 at 472
headers -> 40000005 00000000 00000000 00000001
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes 0d
query 2 -> 472
reserve 0 0 submit 0 -> avail 8 at 480
query 0 -> 8
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 32 at 504
headers -> 00000000 00000000 00000001
take -> 0 bytes 
take -> 0 bytes 
take -> 1 bytes 24
query 2 -> 504
output 1 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 544
headers -> 00000001 00000000 00000001
take -> 1 bytes de
take -> 0 bytes 
take -> 1 bytes 3b
query 2 -> 544
reserve 1 0 submit 0 -> avail 16 at 560
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 584
headers -> 00000001 00000000 00000001
take -> 1 bytes f5
take -> 0 bytes 
take -> 1 bytes 52
query 2 -> 584
output 5 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 624
headers -> 00000005 00000000 00000001
take -> 5 bytes 0c131a2128
take -> 0 bytes 
take -> 1 bytes 69
query 2 -> 624
reserve 5 0 submit 0 -> avail 16 at 640
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 664
headers -> 00000005 00000000 00000001
take -> 5 bytes 232a31383f
take -> 0 bytes 
take -> 1 bytes 80
query 2 -> 664
output 8 0 -> ok
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 704
headers -> 00000008 00000000 00000001
take -> 8 bytes 3a41484f565d646b
take -> 0 bytes 
take -> 1 bytes 97
query 2 -> 704
reserve 8 0 submit 0 -> avail 16 at 720
query 0 -> 16
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 40 at 744
headers -> 00000008 00000000 00000001
take -> 8 bytes 51585f666d747b82
take -> 0 bytes 
take -> 1 bytes ae
query 2 -> 744
output 64 0 -> ok
query 0 -> 72
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 96 at 840
headers -> 00000040 00000000 00000001
take -> 64 bytes 686f767d848b9299a0a7aeb5bcc3cad1.. 07aafdaacf6b2e25
take -> 0 bytes 
take -> 1 bytes c5
query 2 -> 840
reserve 64 0 submit 0 -> avail 72 at 912
query 0 -> 72
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 96 at 936
headers -> 00000040 00000000 00000001
take -> 64 bytes 7f868d949ba2a9b0b7bec5ccd3dae1e8.. e1bce8aa3d8e4fa5
take -> 0 bytes 
take -> 1 bytes dc
query 2 -> 936
output 1000 0 -> ok
query 0 -> 1008
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 1032 at 1968
headers -> 000003e8 00000000 00000001
take -> 1000 bytes 969da4abb2b9c0c7ced5dce3eaf1f8ff.. 24c929e69c91ec7d
take -> 0 bytes 
take -> 1 bytes f3
query 2 -> 1968
reserve 1000 0 submit 0 -> avail 1008 at 2976
query 0 -> 1008
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 1032 at 3000
headers -> 000003e8 00000000 00000001
take -> 1000 bytes adb4bbc2c9d0d7dee5ecf3fa01080f16.. 4bbc2863d2033735
take -> 0 bytes 
take -> 1 bytes 0a
query 2 -> 3000
output 8192 0 -> ok
query 0 -> 8200
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 8224 at 11224
headers -> 00002000 00000000 00000001
take -> 8192 bytes c4cbd2d9e0e7eef5fc030a11181f262d.. 627782a787fe8325
take -> 0 bytes 
take -> 1 bytes 21
query 2 -> 11224
reserve 8192 0 submit 0 -> avail 8200 at 19424
query 0 -> 8200
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 8224 at 19448
headers -> 00002000 00000000 00000001
take -> 8192 bytes dbe2e9f0f7fe050c131a21282f363d44.. 6ddd524a975f2325
take -> 0 bytes 
take -> 1 bytes 38
query 2 -> 19448
output 16367 0 -> ok
query 0 -> 16376
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00003fef
take -> 16367 bytes f2f900070e151c232a31383f464d545b.. e98c6ce6a92bdd6c
take -> nothing
take -> nothing
query 2 -> 35824
reserve 16367 0 submit 0 -> avail 16376 at 52200
query 0 -> 16376
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00003fef
take -> 16367 bytes 0910171e252c333a41484f565d646b72.. 0e2ca5460181f955
take -> nothing
take -> nothing
query 2 -> 52200
output 16368 0 -> ok
query 0 -> 16376
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00003ff0
take -> 16368 bytes 20272e353c434a51585f666d747b8289.. d4e3f4ac071021e5
take -> nothing
take -> nothing
query 2 -> 68576
reserve 16368 0 submit 0 -> avail 16376 at 84952
query 0 -> 16376
output 0 0 -> error 11
reserve 1 0 submit 0 -> null
headers -> 00003ff0
take -> 16368 bytes 373e454c535a61686f767d848b9299a0.. cdff7d21e6279625
take -> nothing
take -> nothing
query 2 -> 84952
output 16369 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 84976
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes ab
take -> nothing
query 2 -> 84976
reserve 16369 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85000
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes c2
take -> nothing
query 2 -> 85000
output 16376 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85024
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes d9
take -> nothing
query 2 -> 85024
reserve 16376 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85048
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes f0
take -> nothing
query 2 -> 85048
output 16384 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85072
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 07
take -> nothing
query 2 -> 85072
reserve 16384 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85096
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 1e
take -> nothing
query 2 -> 85096
output 32768 0 -> error 11
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85120
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 35
take -> nothing
query 2 -> 85120
reserve 32768 0 submit 0 -> null
query 0 -> 0
output 0 0 -> ok
reserve 1 0 submit 0 -> avail 24 at 85144
headers -> 00000000 00000001
take -> 0 bytes 
take -> 1 bytes 4c
take -> nothing
query 2 -> 85144
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> ok
output 1016 0 -> error 11
output 1009 0 -> error 11
output 1008 0 -> ok
reserve 0 0 submit 0 -> null
query 0 -> 16376
take -> 1016 bytes 060d141b222930373e454c535a61686f.. 0218dcf8360ae62d
output 1017 0 -> error 11
output 1016 0 -> ok
reserve 0 0 submit 0 -> null
take -> 1016 bytes 252c333a41484f565d646b727980878e.. 58cd75fe40492835
take -> 1016 bytes 444b525960676e757c838a91989fa6ad.. 3f274422e29876f5
take -> 1016 bytes 636a71787f868d949ba2a9b0b7bec5cc.. 9bda8914609ed7d5
take -> 1016 bytes 828990979ea5acb3bac1c8cfd6dde4eb.. 0303606bc38b66fd
take -> 1016 bytes a1a8afb6bdc4cbd2d9e0e7eef5fc030a.. af991905d77c8b15
take -> 1016 bytes c0c7ced5dce3eaf1f8ff060d141b2229.. 4c4951c2af6ca215
take -> 1016 bytes dfe6edf4fb020910171e252c333a4148.. d36123cd0c6f4aa5
take -> 1016 bytes fe050c131a21282f363d444b52596067.. d326d0dc416aad7d
take -> 1016 bytes 1d242b323940474e555c636a71787f86.. 28995ada87696e55
take -> 1016 bytes 3c434a51585f666d747b828990979ea5.. 8133d8dc5ffa8a75
take -> 1016 bytes 5b626970777e858c939aa1a8afb6bdc4.. 0fc227326222a415
take -> 1016 bytes 7a81888f969da4abb2b9c0c7ced5dce3.. 49fb1164692517ad
take -> 1016 bytes 99a0a7aeb5bcc3cad1d8dfe6edf4fb02.. 92f646d00a32a255
take -> 1016 bytes b8bfc6cdd4dbe2e9f0f7fe050c131a21.. 355b0558593646b5
take -> 1008 bytes 151c232a31383f464d545b626970777e.. 14385974fc12cb85
take -> 1016 bytes b0b7bec5ccd3dae1e8eff6fd040b1219.. 8c4fadc8b0918235
take -> nothing
reserve 64 0 hold submit 0 -> avail 72 at 102616, header 80000040
reserve 5 0 output 9 0 hold submit 0 -> avail 88 at 102632, ok, header 80000005
reserve 1000 0 bare output 16384 0 hold submit 0 -> avail 1120 at 103664, error 11, header 800003e8
reserve 1 0 bare output 8 4 hold submit 0 -> avail 1136 at 103680, error 22, header 80000001
headers -> 00000040 00000005 00000009 000003e8 00000001
take -> 64 bytes fd040b121920272e353c434a51585f66.. 1688c4ea0104a6a5
query 2 -> 102616
take -> 5 bytes 1c232a3138
take -> 9 bytes 1c232a31383f464d54
take -> 1000 bytes fd040b121920272e353c434a51585f66.. 13865b8e10522438
query 2 -> 103664
reserve 64 0 hold discard 0 -> avail 88 at 103752, header 80000040
reserve 5 0 output 9 0 hold discard 0 -> avail 104 at 103768, ok, header 80000005
reserve 1000 0 bare output 16384 0 hold discard 0 -> avail 1136 at 104800, error 11, header 800003e8
reserve 1 0 bare output 8 4 hold discard 0 -> avail 1152 at 104816, error 22, header 80000001
headers -> 00000001 40000040 40000005 00000009 400003e8 40000001
take -> 1 bytes ac
query 2 -> 103680
take -> 9 bytes 71787f868d949ba2a9
take -> nothing
take -> nothing
query 2 -> 104816
asleep 0 -> woken by 0
asleep 1 -> not woken
asleep 2 -> woken by 0
asleep 3 -> woken by 0
asleep 1 0 0 -> not woken
asleep 1 1 2 -> woken by 2
asleep 1 3 -> woken by 1
output 59 8192 -> error 22
take -> 8 bytes 61686f767d848b92
take -> 8 bytes 61686f767d848b92
take -> nothing
headers -> none
reserve 1 0 output 50 0 submit 0 -> avail 16 at 105024, ok
output 22367 0 -> error 11
output 59 1 -> ok
take -> 1 bytes 1b
reserve 32768 0 output 1 3 discard 0 -> null
take -> 50 bytes 1b222930373e454c535a61686f767d84.. 30786967528257c8
reserve 64 0 discard 1 -> avail 144 at 105232
reserve 5 0 submit 1 -> avail 160 at 105248
reserve 0 0 discard 0 -> avail 168 at 105256
reserve 64 0 submit 1 -> avail 240 at 105328
take -> 59 bytes 5960676e757c838a91989fa6adb4bbc2.. 5fc87beb330995a9
take -> 5 bytes f4fb020910
headers -> 40000000 00000040
reserve 5 0 submit 3 -> avail 96 at 105344
reserve 8 0 submit 0 -> avail 112 at 105360
take -> 64 bytes 323940474e555c636a71787f868d949b.. c8b6355e91fc1965
output 74 7 -> error 22
output 20 0 -> ok
headers -> 00000005 00000008 00000014
reserve 8 0 submit 64 -> avail 80 at 105408
take -> 5 bytes aeb5bcc3ca
take -> 8 bytes cdd4dbe2e9f0f7fe
take -> 20 bytes 2a31383f464d545b626970777e858c93.. b7ce0fdf4cc1e641
headers -> 00000008
take -> 8 bytes 686f767d848b9299
output 3203 4294967296 -> error 22
output 3076 0 -> ok
reserve 1 0 submit 32 -> avail 3104 at 108512
take -> 3076 bytes 41484f565d646b727980878e959ca3aa.. 8adad2e0f2e1251d
take -> 1 bytes 60
reserve 1 0 output 47 0 submit 0 -> avail 16 at 108528, ok
reserve 1 0 output 1081 0 submit 0 -> avail 88 at 108600, ok
reserve 16369 0 discard 0 -> null
take -> 1 bytes bd
take -> 47 bytes bdc4cbd2d9e0e7eef5fc030a11181f26.. 8b039ccaede1c9a1
output 17 0 -> ok
take -> 1 bytes dc
output 2241 3 -> ok
reserve 5 0 submit 6 -> avail 3400 at 112000
take -> 1081 bytes dce3eaf1f8ff060d141b222930373e45.. 66c5686ba3198063
take -> 17 bytes 585f666d747b828990979ea5acb3bac1.. 63ce9249944aed77
reserve 64 0 submit 0 -> avail 2344 at 112072
take -> 2241 bytes 969da4abb2b9c0c7ced5dce3eaf1f8ff.. 41a96c6c72be5d29
reserve 8 0 output 72 1 discard 0 -> avail 104 at 112088, ok
output 22544 1 -> error 11
reserve 5 2 output 3157 0 submit 0 -> null
take -> 5 bytes b5bcc3cad1
output 27 6 -> error 22
take -> 64 bytes 121920272e353c434a51585f666d747b.. 14680df1713a2d65
headers -> 40000008 00000048
output 874 0 -> ok
output 2328 7 -> error 22
take -> 72 bytes 50575e656c737a81888f969da4abb2b9.. d3dd411289670755
output 77 0 -> ok
output 7 0 -> ok
headers -> 0000036a 0000004d 00000007
take -> 874 bytes 2930373e454c535a61686f767d848b92.. 029fcd8076863f9c
take -> 77 bytes 868d949ba2a9b0b7bec5ccd3dae1e8ef.. f9985ffa15b5e661
take -> 7 bytes a5acb3bac1c8cf
output 60 3 -> ok
output 13953 0 -> ok
take -> 60 bytes 40474e555c636a71787f868d949ba2a9.. b5959e539f53d895
take -> 13953 bytes 5f666d747b828990979ea5acb3bac1c8.. 060ec84f1acf34ce
output 84 0 -> ok
output 76 1 -> ok
output 89 0 -> ok
reserve 8 0 submit 0 -> avail 304 at 127504
reserve 1 0 discard 4398046511104 -> avail 320 at 127520
take -> 84 bytes bcc3cad1d8dfe6edf4fb020910171e25.. 5e0e1f7e4de10735
take -> 76 bytes dbe2e9f0f7fe050c131a21282f363d44.. 6d8c57d11da1ea89
output 48 3 -> ok
take -> 89 bytes fa01080f161d242b323940474e555c63.. 1c6ec2569717badd
take -> 8 bytes 1920272e353c434a
headers -> 40000001 00000030
output 3833 0 -> ok
reserve 8 0 discard 0 -> avail 3936 at 131440
output 73 0 -> ok
headers -> 40000001 00000030 00000ef9 40000008 00000049
output 42 4 -> error 22
take -> 48 bytes 959ca3aab1b8bfc6cdd4dbe2e9f0f7fe.. 191a88190bd88e05
reserve 8 0 submit 0 -> avail 3968 at 131544
query 2 -> 127576
output 89 0 -> ok
headers -> 00000ef9 40000008 00000049 00000008 00000059
output 24 2305843009213693952 -> error 22
output 81 0 -> ok
take -> 3833 bytes 11181f262d343b424950575e656c737a.. d95871ee5d2e23a4
headers -> 40000008 00000049 00000008 00000059 00000051
reserve 8 0 output 2799 0 discard 0 -> avail 336 at 131760, ok
output 90 0 -> ok
take -> 73 bytes 4f565d646b727980878e959ca3aab1b8.. 495a0b164d4de006
output 40 0 -> ok
take -> 8 bytes cbd2d9e0e7eef5fc
reserve 5 0 output 2714 0 submit 0 -> avail 3192 at 134736, ok
reserve 64 0 submit 3 -> avail 5992 at 137536
reserve 0 0 output 2415 0 discard 2 -> avail 6000 at 137544, ok
query 3 -> 139968
output 47 0 -> ok
take -> 89 bytes 0910171e252c333a41484f565d646b72.. c34f0f8e7d290eec
take -> 81 bytes 666d747b828990979ea5acb3bac1c8cf.. 3ee5ceabdb2c4199
reserve 1 0 submit 576460752303423488 -> avail 8296 at 140040
output 91 3 -> ok
take -> 2799 bytes c3cad1d8dfe6edf4fb020910171e252c.. 793d45c4b89f1e0b
output 24 0 -> ok
reserve 1000 0 submit 2 -> avail 6616 at 141184
take -> 90 bytes e2e9f0f7fe050c131a21282f363d444b.. be5ced7454936fcc
reserve 1 0 submit 0 -> avail 6528 at 141200
output 81 0 -> ok
take -> 40 bytes 20272e353c434a51585f666d747b8289.. 3c943b4624a83375
reserve 64 0 output 23 0 discard 0 -> avail 6648 at 141368, ok
take -> 5 bytes 5e656c737a
output 10 0 -> ok
output 40 3 -> ok
take -> 2714 bytes 5e656c737a81888f969da4abb2b9c0c7.. 62d6f60c655b8e44
take -> 64 bytes 7d848b9299a0a7aeb5bcc3cad1d8dfe6.. 22649ea539bbe9a5
take -> 2415 bytes 9ca3aab1b8bfc6cdd4dbe2e9f0f7fe05.. 46203ee472fd7502
take -> 47 bytes dae1e8eff6fd040b121920272e353c43.. 8ba91923353ae014
take -> 1 bytes 37
output 26673 131072 -> error 22
headers -> 0000005b 00000018 000003e8 00000001 00000051 40000040 00000017 0000000a 00000028
take -> 91 bytes 565d646b727980878e959ca3aab1b8bf.. b27885e083de59f8
output 11 6 -> error 22
take -> 24 bytes 949ba2a9b0b7bec5ccd3dae1e8eff6fd.. 282cdf957202f395
query 1 -> 16384
output 1690 0 -> ok
take -> 1000 bytes b3bac1c8cfd6dde4ebf2f900070e151c.. 8b87d854690c2fd5
reserve 8 0 submit 0 -> avail 2008 at 143192
reserve 0 0 submit 6 -> avail 2016 at 143200
reserve 1000 0 output 54 32768 submit 0 -> avail 3024 at 144208, error 22
take -> 1 bytes f1
reserve 1 0 discard 0 -> avail 3024 at 144224
reserve 64 0 submit 0 -> avail 3096 at 144296
headers -> 00000051 40000040 00000017 0000000a 00000028 0000069a 00000008 00000000 000003e8 40000001 00000040
reserve 5 0 submit 0 -> avail 3112 at 144312
output 362 0 -> ok
output 2623 0 -> ok
headers -> 00000051 40000040 00000017 0000000a 00000028 0000069a 00000008 00000000 000003e8 40000001 00000040 00000005 0000016a 00000a3f
query 4 -> 0
take -> 81 bytes 10171e252c333a41484f565d646b7279.. 566d9460455d0a5f
take -> 23 bytes 4e555c636a71787f868d949ba2a9b0b7.. c4c0dc3abaadd040
take -> 10 bytes 8c939aa1a8afb6bdc4cb
output 69 1 -> ok
reserve 5 0 submit 0 -> avail 5992 at 147416
output 20104 0 -> error 11
take -> 40 bytes abb2b9c0c7ced5dce3eaf1f8ff060d14.. 6a80077942e04275
