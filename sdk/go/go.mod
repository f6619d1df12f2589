module schedo

go 1.22
