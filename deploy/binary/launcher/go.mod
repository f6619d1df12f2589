module schedo-launcher

go 1.22
