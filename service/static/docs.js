"use strict";
window.addEventListener("load", function () {
  SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    persistAuthorization: false,
    displayRequestDuration: true,
    validatorUrl: null,
    tryItOutEnabled: true,
  });
});
