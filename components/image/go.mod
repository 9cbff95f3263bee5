module hactl.example/components/image

go 1.26.0
