console.log(require("format")(100));
